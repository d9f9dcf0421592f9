// SPDX-License-Identifier: Apache-2.0
/* A driver for one weft machine, in C99, without a heap: on any bus that reads and writes words of 32 bits.
 *
 * It is compiled for one machine: weft.h, which `weft verilog` writes, must be on the include path.
 * Every function that returns an int returns WEFT_OK or an error. Addresses count bytes.
 */
#ifndef WEFT_DRIVER_H
#define WEFT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

#ifdef __cplusplus
extern "C" {
#endif

enum weft_result {
    WEFT_OK = 0,
    WEFT_NO_MACHINE,    /* IDENTITY is not that of a weft machine */
    WEFT_OTHER_MACHINE, /* a register says that weft.h describes another one */
    WEFT_BUSY,          /* a program runs: somebody else's as the device is opened, or its own, see weft_poll */
    WEFT_UNALIGNED,     /* a place of memory or size that is not allowed, see weft_place */
    WEFT_NOT_WRITTEN,   /* memory or a register does not hold what was written */
    WEFT_SILENT,        /* a command had no effect */
    WEFT_TIMEOUT,       /* a program that did not end in time: program_counter says where it is */
    WEFT_STOPPED,       /* the machine refused an instruction: cause and program_counter */
    WEFT_LOST           /* no answer, no power for a while, or no program: open again, and write all memory again */
};

/* Words at bus addresses that are multiples of 4. `pause` is called between two looks at a machine that works.
 *
 * All but `read` and `write` may be NULL. Bulk transfers move many words of memory at once: address and bytes are
 * multiples of 4, content has any alignment. A processor whose cache holds the machine's memory needs `clean`, which
 * brings to memory what was written, and `invalidate`, which drops what is held of memory that the machine writes;
 * address and bytes are multiples of 4, and nothing that lies there is dirty as `invalidate` is called. `barrier`
 * orders accesses to memory and to registers: it is called before a start, and after an end was seen. */
struct weft_bus {
    uint32_t (*read)(void *context, uint64_t address);
    void (*write)(void *context, uint64_t address, uint32_t word);
    void (*pause)(void *context);
    void *context;
    void (*read_bulk)(void *context, uint64_t address, void *content, size_t bytes);
    void (*write_bulk)(void *context, uint64_t address, const void *content, size_t bytes);
    void (*clean)(void *context, uint64_t address, size_t bytes);
    void (*invalidate)(void *context, uint64_t address, size_t bytes);
    void (*barrier)(void *context);
};

/* A piece of memory: its bus address, and the address that the machine's ports have for it. */
struct weft_place {
    uint64_t bus, machine; /* bus a multiple of 4; machine of WEFT_DRAM_OFFSET_BYTES for dram0 and dram1 */
};

struct weft_device {
    struct weft_bus bus;
    uint64_t registers;
    struct weft_place dram0, dram1, program;
    uint32_t looks; /* of weft_wait before it is WEFT_TIMEOUT */
    /* Of the last run. */
    uint32_t status, cause, program_counter;
    uint64_t cycles, instructions;
};

/* A sample of the port m_axis_sample: bit WEFT_SAMPLE_... of `valid` and `ready` belongs to that handshake. */
struct weft_sample {
    uint32_t program_counter;
    uint8_t valid, ready;
};

/* Sums over samples: how many there were, and in how many each handshake was offered, and taken. */
struct weft_profile {
    uint64_t samples, offered[WEFT_SAMPLE_HANDSHAKES], taken[WEFT_SAMPLE_HANDSHAKES];
};

/* A name for people. */
const char *weft_error(int result);

/* Fills the device and sees that it is the machine of weft.h, at rest. Leaves a mark in the register SCRATCH, which a
   machine loses with its power: without it, weft_start, weft_poll and weft_read return WEFT_LOST. */
int weft_open(struct weft_device *device, const struct weft_bus *bus, uint64_t registers, struct weft_place dram0,
              struct weft_place dram1, struct weft_place program);

/* Writes vectors of dram0 or dram1 from vector `address` on, as a .tdata file has them, and reads them back. */
int weft_write(struct weft_device *device, const struct weft_place *memory, uint64_t address, const void *vectors,
               size_t count);

/* Reads vectors. */
int weft_read(struct weft_device *device, const struct weft_place *memory, uint64_t address, void *vectors, size_t count);

/* Writes a program, the content of a .tprog file, to program memory: what weft_run runs. *size: its bytes there. */
int weft_load(struct weft_device *device, const void *program, size_t bytes, uint32_t *size);

/* Runs the program of weft_load once, from reset, to the end: weft_start, then weft_wait. */
int weft_run(struct weft_device *device, uint32_t size);

/* Starts the program of weft_load and returns while it runs. Until its end only weft_poll and weft_wait may follow, and
   accesses to memory that the program does not use. */
int weft_start(struct weft_device *device, uint32_t size);

/* Looks once at a program that was started: WEFT_BUSY, or how it ended. An end takes back the machine's interrupt. */
int weft_poll(struct weft_device *device);

/* Looks until the program has ended, `looks` times at most, with `pause` after each. */
int weft_wait(struct weft_device *device);

/* Stops a program that runs, by a soft reset; somebody else's too, after WEFT_BUSY of weft_open, which then opens. */
int weft_stop(struct weft_device *device);

#if WEFT_CORES > 1
/* Of a machine of several cores each is a device of its own, which weft_open opens: core k has its registers
   k * WEFT_CORE_PAGE_BYTES behind those of core 0, and its own places of dram0 and program memory; dram1 is that of
   all. Runs the program of weft_load, of sizes[k] bytes, on each of cores 0 to count - 1, which start in the same
   cycle. *failed: the core that an error is of; what it says is in that core's device. */
int weft_run_group(struct weft_device *cores, const uint32_t *sizes, size_t count, size_t *failed);

/* The same in two steps; weft_poll looks at one core. */
int weft_start_group(struct weft_device *cores, const uint32_t *sizes, size_t count, size_t *failed);
int weft_wait_group(struct weft_device *cores, size_t count, size_t *failed);
#endif

/* Channels x height x width integers to vectors as the machine has them, missing channels `zero`; and back. `zero` is
   the integer that means 0: 0 in fixed point, the tensor's zero point, which the .tmodel has, in bytes (INT8). */
void weft_pack(const int32_t *tensor, size_t channels, size_t height, size_t width, int32_t zero, void *vectors);
void weft_unpack(const void *vectors, size_t channels, size_t height, size_t width, int32_t *tensor);

/* How many vectors that are. */
size_t weft_vectors(size_t channels, size_t height, size_t width);

/* One word of the sample port; 0 for a word that only fills up a packet. */
int weft_decode_sample(uint64_t word, struct weft_sample *sample);
void weft_profile_add(struct weft_profile *profile, const struct weft_sample *sample);

#ifdef __cplusplus
}
#endif

#endif
