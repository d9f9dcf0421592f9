// SPDX-License-Identifier: Apache-2.0
// The storage behind axi_dram.sv: one sparse file per port, mapped MAP_SHARED, so that the Python process which
// started the simulation fills and reads it in place.
//
// AXI lets a read take its value anywhere between AR and R, and a write take effect anywhere before its response.
// This memory uses both freedoms against the master: a read is sampled either when it starts (a snapshot) or beat by
// beat as late as it can be, and a write shows only when its response does. A master that reads before the response
// of a write it depends on, or overwrites what it has not read yet, is therefore found out.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kPorts = 12;  // four memory ports of three windows each
constexpr int kSlots = 32;      // bursts in flight each way; as SLOTS in axi_paced.sv, axi_dram.sv has fewer
constexpr int kBurstBytes = 4096;  // no burst is longer: it would cross a 4 KiB boundary

struct ReadBurst {
    const uint8_t* source;  // into the mapped file, or the snapshot below
    uint8_t snapshot[kBurstBytes];
};

struct WriteWord {
    uint64_t address;
    uint32_t data;
    uint32_t strobe;  // bit i: byte i is written
};

struct Port {
    uint8_t* data = nullptr;
    uint64_t size = 0;
    ReadBurst reads[kSlots];
    std::vector<WriteWord> writes[kSlots];
};

Port ports[kPorts];

}  // namespace

#define DPI extern "C" __attribute__((visibility("default"), used))

// Maps the file at `path`; returns its size in bytes, 0 (after a message) when that fails.
DPI unsigned long long dram_open(int port, const char* path) {
    Port& p = ports[port];
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat info {};
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size == 0) {
        fprintf(stderr, "dram_open: '%s': %s\n", path, errno ? strerror(errno) : "the file is empty");
        if (fd >= 0) close(fd);
        return 0;
    }
    void* map = mmap(nullptr, info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) {
        fprintf(stderr, "dram_open: cannot map '%s': %s\n", path, strerror(errno));
        return 0;
    }
    p.data = static_cast<uint8_t*>(map);
    p.size = info.st_size;
    return p.size;
}

// The caller has checked that [address, address + bytes) lies in the memory and within one 4 KiB page.
DPI void dram_read_start(int port, int slot, unsigned long long address, int bytes, int snapshot) {
    ReadBurst& burst = ports[port].reads[slot];
    burst.source = ports[port].data + address;
    if (snapshot) {
        memcpy(burst.snapshot, burst.source, bytes);
        burst.source = burst.snapshot;
    }
}

DPI unsigned int dram_read_word(int port, int slot, int offset) {
    uint32_t word;
    memcpy(&word, ports[port].reads[slot].source + offset, sizeof word);
    return word;
}

DPI void dram_write_start(int port, int slot) { ports[port].writes[slot].clear(); }

DPI void dram_write_word(int port, int slot, unsigned long long address, unsigned int data, int strobe) {
    ports[port].writes[slot].push_back({address, data, static_cast<uint32_t>(strobe)});
}

DPI void dram_write_commit(int port, int slot) {
    uint8_t* memory = ports[port].data;
    for (const WriteWord& word : ports[port].writes[slot]) {
        if (word.strobe == 0xF) {
            memcpy(memory + word.address, &word.data, 4);
            continue;
        }
        for (int i = 0; i < 4; i++)
            if (word.strobe >> i & 1) memory[word.address + i] = word.data >> (8 * i);
    }
}
