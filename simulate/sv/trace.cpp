// SPDX-License-Identifier: Apache-2.0
// Writes the events of the machine's trace port (sim_top.py) to a file: 16 bytes each, as simulate/trace.py reads them.

#include <cstdint>
#include <cstdio>

namespace {

struct Event {
    uint64_t cycle;
    uint32_t program_counter;  // of an issued operation, else 0
    uint8_t kind;
    uint8_t unit;
    uint16_t core;
};
static_assert(sizeof(Event) == 16);

FILE* file = nullptr;

}  // namespace

#define DPI extern "C" __attribute__((visibility("default"), used))

// Returns 0 (after a message) when the file cannot be written.
DPI int trace_open(const char* path) {
    file = fopen(path, "wb");
    if (!file) perror(path);
    return file != nullptr;
}

DPI void trace_event(unsigned long long cycle, int kind, int unit, unsigned int program_counter,
                     int core) {
    const Event event{cycle, program_counter, static_cast<uint8_t>(kind), static_cast<uint8_t>(unit),
                      static_cast<uint16_t>(core)};
    fwrite(&event, sizeof event, 1, file);
}

DPI void trace_close() { fclose(file); }
