// SPDX-License-Identifier: Apache-2.0
#include "weft_driver.h"

#define ALL_WORDS UINT32_C(0xffffffff)
#define COMMAND_TRIES 5u
#define COMMAND_LOOKS 1000u
#define START_LOOKS 3u
#define PROLOGUE_INSTRUCTIONS 3u
#define READ_BACK_BYTES 256u
#define ENDED (WEFT_STATUS_DONE | WEFT_STATUS_ERROR)
#define ALIVE (ENDED | WEFT_STATUS_RUNNING)
#define MARK (~WEFT_VALUE_IDENTITY) /* in SCRATCH since weft_open; 0 after the power came back */

static uint32_t get(const struct weft_device *device, uint32_t offset)
{
    return device->bus.read(device->bus.context, device->registers + offset);
}

static void set(const struct weft_device *device, uint32_t offset, uint32_t value)
{
    device->bus.write(device->bus.context, device->registers + offset, value);
}

static void call(const struct weft_device *device, void (*hook)(void *context))
{
    if (hook)
        hook(device->bus.context);
}

/* A register that keeps what is written. */
static int keep(const struct weft_device *device, uint32_t offset, uint32_t value)
{
    set(device, offset, value);
    return get(device, offset) == value ? WEFT_OK : WEFT_NOT_WRITTEN;
}

/* What else there is to say, unless the machine does not answer or was without power since weft_open. */
static int unless_lost(const struct weft_device *device, int result)
{
    return get(device, WEFT_CSR_SCRATCH) == MARK ? result : WEFT_LOST;
}

const char *weft_error(int result)
{
    static const char *const names[] = {"ok", "no weft machine", "another machine", "busy", "unaligned", "not written",
                                        "silent", "timeout", "stopped", "lost"};
    return result >= 0 && (size_t)result < sizeof names / sizeof *names ? names[result] : "unknown";
}

/* -- memory ------------------------------------------------------------------------------------------------------- */

typedef void (*range_hook)(void *context, uint64_t address, size_t bytes);

/* Calls a hook, if the bus has it, for the words that a range touches. */
static void each_word(const struct weft_device *device, range_hook hook, uint64_t address, size_t size)
{
    const uint64_t first = address & ~(uint64_t)3, end = (address + size + 3) & ~(uint64_t)3;
    if (hook && size)
        hook(device->bus.context, first, (size_t)(end - first));
}

/* How many of the next bytes one transfer moves: in bulk all whole words, else what lies in one word. */
static size_t transfer(uint64_t address, size_t size, int bulk)
{
    const size_t room = 4 - (size_t)(address % 4);
    if (bulk && room == 4 && size >= 4)
        return size & ~(size_t)3;
    return size < room ? size : room;
}

/* The word at a bus address that is a multiple of 4, with `count` bytes from `first` on replaced. */
static void store_part(const struct weft_device *device, uint64_t address, const uint8_t *bytes, unsigned first,
                       unsigned count)
{
    uint32_t word = count == 4 ? 0 : device->bus.read(device->bus.context, address);
    for (unsigned i = 0; i < count; i++) {
        const unsigned shift = 8 * (first + i);
        word = (word & ~(UINT32_C(0xff) << shift)) | (uint32_t)bytes[i] << shift;
    }
    device->bus.write(device->bus.context, address, word);
}

static void store(const struct weft_device *device, uint64_t address, const uint8_t *bytes, size_t size)
{
    const int bulk = device->bus.write_bulk != NULL;
    for (size_t at = 0, count; at < size; at += count) {
        const unsigned first = (unsigned)((address + at) % 4);
        count = transfer(address + at, size - at, bulk);
        if (bulk && count >= 4)
            device->bus.write_bulk(device->bus.context, address + at, bytes + at, count);
        else
            store_part(device, address + at - first, bytes + at, first, (unsigned)count);
    }
}

static void take(const struct weft_device *device, uint64_t address, uint8_t *bytes, size_t size)
{
    const int bulk = device->bus.read_bulk != NULL;
    for (size_t at = 0, count; at < size; at += count) {
        const unsigned first = (unsigned)((address + at) % 4);
        count = transfer(address + at, size - at, bulk);
        if (bulk && count >= 4) {
            device->bus.read_bulk(device->bus.context, address + at, bytes + at, count);
            continue;
        }
        const uint32_t word = device->bus.read(device->bus.context, address + at - first);
        for (unsigned i = 0; i < count; i++)
            bytes[at + i] = (uint8_t)(word >> 8 * (first + i));
    }
}

/* Whether memory holds these bytes. */
static int holds(const struct weft_device *device, uint64_t address, const uint8_t *bytes, size_t size)
{
    uint8_t found[READ_BACK_BYTES];
    for (size_t at = 0; at < size; at += sizeof found) {
        const size_t count = size - at < sizeof found ? size - at : sizeof found;
        for (size_t i = 0; i < count; i++)
            found[i] = (uint8_t)~bytes[at + i]; /* a bulk read that does nothing finds no memory */
        take(device, address + at, found, count);
        for (size_t i = 0; i < count; i++)
            if (found[i] != bytes[at + i])
                return 0;
    }
    return 1;
}

/* Writes, and reads back from memory itself. Words that are written in part are read before: the machine may have
   written their rest. */
static int put(const struct weft_device *device, uint64_t address, const uint8_t *bytes, size_t size)
{
    each_word(device, device->bus.invalidate, address, size);
    store(device, address, bytes, size);
    each_word(device, device->bus.clean, address, size);
    each_word(device, device->bus.invalidate, address, size);
    return holds(device, address, bytes, size) ? WEFT_OK : WEFT_NOT_WRITTEN;
}

int weft_write(struct weft_device *device, const struct weft_place *memory, uint64_t address, const void *vectors,
               size_t count)
{
    return put(device, memory->bus + address * WEFT_VECTOR_BYTES, vectors, count * WEFT_VECTOR_BYTES);
}

int weft_read(struct weft_device *device, const struct weft_place *memory, uint64_t address, void *vectors, size_t count)
{
    const uint64_t first = memory->bus + address * WEFT_VECTOR_BYTES;
    each_word(device, device->bus.invalidate, first, count * WEFT_VECTOR_BYTES);
    take(device, first, vectors, count * WEFT_VECTOR_BYTES);
    return unless_lost(device, WEFT_OK);
}

/* -- the machine -------------------------------------------------------------------------------------------------- */
static int is_ours(const struct weft_device *device)
{
    static const struct {
        uint32_t offset, value;
    } expected[] = {
        {WEFT_CSR_VERSION, WEFT_VALUE_VERSION},
        {WEFT_CSR_ARRAY_SIZE, WEFT_VALUE_ARRAY_SIZE},
        {WEFT_CSR_DATA_TYPE, WEFT_VALUE_DATA_TYPE},
        {WEFT_CSR_LOCAL_DEPTH, WEFT_VALUE_LOCAL_DEPTH},
        {WEFT_CSR_ACCUMULATOR_DEPTH, WEFT_VALUE_ACCUMULATOR_DEPTH},
        {WEFT_CSR_DRAM0_DEPTH_M1, WEFT_VALUE_DRAM0_DEPTH_M1},
        {WEFT_CSR_DRAM1_DEPTH_M1, WEFT_VALUE_DRAM1_DEPTH_M1},
        {WEFT_CSR_SIMD, WEFT_VALUE_SIMD},
        {WEFT_CSR_STRIDES, WEFT_VALUE_STRIDES},
        {WEFT_CSR_ARCH_HASH, WEFT_VALUE_ARCH_HASH},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (get(device, expected[i].offset) != expected[i].value)
            return 0;
    return 1;
}

int weft_open(struct weft_device *device, const struct weft_bus *bus, uint64_t registers, struct weft_place dram0,
              struct weft_place dram1, struct weft_place program)
{
    const struct weft_device fresh = {.bus = *bus, .registers = registers, .dram0 = dram0, .dram1 = dram1,
                                      .program = program, .looks = ALL_WORDS};
    *device = fresh;
    if (registers % 4 || dram0.bus % 4 || dram1.bus % 4 || program.bus % 4 || dram0.machine % WEFT_DRAM_OFFSET_BYTES
        || dram1.machine % WEFT_DRAM_OFFSET_BYTES || program.machine % (WEFT_STREAM_WIDTH / 8))
        return WEFT_UNALIGNED;
    device->status = get(device, WEFT_CSR_STATUS);
    if (get(device, WEFT_CSR_IDENTITY) != WEFT_VALUE_IDENTITY)
        return WEFT_NO_MACHINE;
    if (!is_ours(device))
        return WEFT_OTHER_MACHINE;
    return device->status & WEFT_STATUS_RUNNING ? WEFT_BUSY : keep(device, WEFT_CSR_SCRATCH, MARK);
}

/* What a program begins with: its windows are moved to where DRAM is, then it counts from 0. */
int weft_load(struct weft_device *device, const void *program, size_t bytes, uint32_t *size)
{
    uint8_t prologue[PROLOGUE_INSTRUCTIONS][WEFT_INSTRUCTION_BYTES];
    const uint64_t offset0 = device->dram0.machine / WEFT_DRAM_OFFSET_BYTES;
    const uint64_t offset1 = device->dram1.machine / WEFT_DRAM_OFFSET_BYTES;
    if (bytes % WEFT_INSTRUCTION_BYTES || bytes > ALL_WORDS - sizeof prologue || offset0 > WEFT_OPERAND1_MASK
        || offset1 > WEFT_OPERAND1_MASK)
        return WEFT_UNALIGNED;
    weft_encode(prologue[0], WEFT_OP_CONFIGURE, 0, WEFT_CONFIG_DRAM0_OFFSET, offset0, 0);
    weft_encode(prologue[1], WEFT_OP_CONFIGURE, 0, WEFT_CONFIG_DRAM1_OFFSET, offset1, 0);
    weft_encode(prologue[2], WEFT_OP_CONFIGURE, 0, WEFT_CONFIG_PROGRAM_COUNTER, 0, 0);
    *size = (uint32_t)(sizeof prologue + bytes);
    const int result = put(device, device->program.bus, prologue[0], sizeof prologue);
    return result != WEFT_OK ? result : put(device, device->program.bus + sizeof prologue, program, bytes);
}

int weft_stop(struct weft_device *device)
{
    for (unsigned tries = 0; tries < COMMAND_TRIES; tries++) {
        set(device, WEFT_CSR_CONTROL, WEFT_CONTROL_SOFT_RESET);
        for (unsigned look = 0; look < COMMAND_LOOKS; look++) {
            device->status = get(device, WEFT_CSR_STATUS);
            if (device->status == WEFT_STATUS_IDLE) {
                set(device, WEFT_CSR_INTERRUPT_STATUS, ENDED);
                return WEFT_OK;
            }
            call(device, device->bus.pause);
        }
    }
    return WEFT_SILENT;
}

static int start(struct weft_device *device)
{
    for (unsigned tries = 0; tries < COMMAND_TRIES; tries++) {
        set(device, WEFT_CSR_CONTROL, WEFT_CONTROL_START);
        for (unsigned look = 0; look < START_LOOKS; look++) {
            device->status = get(device, WEFT_CSR_STATUS);
            if (device->status & ALIVE)
                return WEFT_OK;
            call(device, device->bus.pause);
        }
    }
    return WEFT_SILENT;
}

/* Looks once, and does not ask whether what it sees is true. */
static int look(struct weft_device *device)
{
    device->status = get(device, WEFT_CSR_STATUS);
    if (!(device->status & ALIVE)) /* the cycle before an end, or no program */
        device->status = get(device, WEFT_CSR_STATUS);
    if (!(device->status & ALIVE))
        return WEFT_LOST;
    if (device->status & WEFT_STATUS_RUNNING)
        return WEFT_BUSY;
    set(device, WEFT_CSR_INTERRUPT_STATUS, ENDED);
    call(device, device->bus.barrier);
    device->cycles = get(device, WEFT_CSR_CYCLES_LOW) | (uint64_t)get(device, WEFT_CSR_CYCLES_HIGH) << 32;
    device->instructions = get(device, WEFT_CSR_INSTRUCTIONS_LOW) | (uint64_t)get(device, WEFT_CSR_INSTRUCTIONS_HIGH) << 32;
    if (!(device->status & WEFT_STATUS_ERROR))
        return WEFT_OK;
    device->cause = get(device, WEFT_CSR_ERROR_CAUSE);
    device->program_counter = get(device, WEFT_CSR_ERROR_PROGRAM_COUNTER);
    return WEFT_STOPPED;
}

int weft_poll(struct weft_device *device)
{
    const int result = look(device);
    return unless_lost(device, result);
}

int weft_wait(struct weft_device *device)
{
    for (uint32_t looks = 0; looks < device->looks; looks++) {
        const int result = weft_poll(device);
        if (result != WEFT_BUSY)
            return result;
        call(device, device->bus.pause);
    }
    device->program_counter = get(device, WEFT_CSR_PROGRAM_COUNTER);
    return unless_lost(device, WEFT_TIMEOUT);
}

/* To reset, and told what to run. */
static int prepare(struct weft_device *device, uint32_t size)
{
    const uint32_t registers[][2] = {
        {WEFT_CSR_PROGRAM_ADDRESS_LOW, (uint32_t)device->program.machine},
        {WEFT_CSR_PROGRAM_ADDRESS_HIGH, (uint32_t)(device->program.machine >> 32)},
        {WEFT_CSR_PROGRAM_BYTES, size},
        {WEFT_CSR_INTERRUPT_ENABLE, ENDED},
    };
    device->cause = device->program_counter = 0;
    device->cycles = device->instructions = 0;
    int result = unless_lost(device, WEFT_OK);
    if (result == WEFT_OK)
        result = weft_stop(device);
    for (size_t i = 0; result == WEFT_OK && i < sizeof registers / sizeof *registers; i++)
        result = keep(device, registers[i][0], registers[i][1]);
    call(device, device->bus.barrier);
    return result;
}

int weft_start(struct weft_device *device, uint32_t size)
{
    const int result = prepare(device, size);
    return result == WEFT_OK ? start(device) : result;
}

int weft_run(struct weft_device *device, uint32_t size)
{
    const int result = weft_start(device, size);
    return result == WEFT_OK ? weft_wait(device) : result;
}

#if WEFT_CORES > 1
/* Until every core is seen to have begun: all of them begin in the same cycle. */
static int start_group(struct weft_device *cores, size_t count)
{
    for (unsigned tries = 0; tries < COMMAND_TRIES; tries++) {
        set(cores, WEFT_SYSTEM_GROUP_START, (UINT32_C(1) << count) - 1);
        for (unsigned look = 0; look < START_LOOKS; look++) {
            size_t begun = 0;
            for (size_t core = 0; core < count; core++) {
                cores[core].status = get(&cores[core], WEFT_CSR_STATUS);
                begun += (cores[core].status & ALIVE) != 0;
            }
            if (begun == count)
                return WEFT_OK;
            call(cores, cores->bus.pause);
        }
    }
    return WEFT_SILENT;
}

int weft_start_group(struct weft_device *cores, const uint32_t *sizes, size_t count, size_t *failed)
{
    int result = count && count <= WEFT_CORES ? WEFT_OK : WEFT_UNALIGNED;
    *failed = 0;
    for (size_t core = 0; result == WEFT_OK && core < count; core++) {
        *failed = core;
        result = prepare(&cores[core], sizes[core]);
    }
    if (result != WEFT_OK)
        return result;
    *failed = 0;
    return start_group(cores, count);
}

int weft_wait_group(struct weft_device *cores, size_t count, size_t *failed)
{
    int result = WEFT_OK;
    *failed = 0;
    for (size_t core = 0; result == WEFT_OK && core < count; core++) {
        *failed = core;
        result = weft_wait(&cores[core]);
    }
    return result;
}

int weft_run_group(struct weft_device *cores, const uint32_t *sizes, size_t count, size_t *failed)
{
    const int result = weft_start_group(cores, sizes, count, failed);
    return result == WEFT_OK ? weft_wait_group(cores, count, failed) : result;
}
#endif

/* -- tensors ------------------------------------------------------------------------------------------------------ */
size_t weft_vectors(size_t channels, size_t height, size_t width)
{
    return (channels + WEFT_ARRAY_SIZE - 1) / WEFT_ARRAY_SIZE * height * width;
}

/* Number of the scalar that a channel of a pixel is. */
static size_t scalar(size_t channel, size_t pixel, size_t pixels)
{
    return (channel / WEFT_ARRAY_SIZE * pixels + pixel) * WEFT_ARRAY_SIZE + channel % WEFT_ARRAY_SIZE;
}

void weft_pack(const int32_t *tensor, size_t channels, size_t height, size_t width, int32_t zero, void *vectors)
{
    uint8_t *out = vectors;
    const size_t pixels = height * width, lanes = weft_vectors(channels, 1, 1) * WEFT_ARRAY_SIZE;
    for (size_t channel = 0; channel < lanes; channel++)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            const uint32_t value = channel < channels ? (uint32_t)tensor[channel * pixels + pixel] : (uint32_t)zero;
            for (unsigned byte = 0; byte < WEFT_SCALAR_BYTES; byte++)
                out[scalar(channel, pixel, pixels) * WEFT_SCALAR_BYTES + byte] = (uint8_t)(value >> 8 * byte);
        }
}

void weft_unpack(const void *vectors, size_t channels, size_t height, size_t width, int32_t *tensor)
{
    const uint8_t *in = vectors;
    const size_t pixels = height * width;
    const uint32_t sign = UINT32_C(1) << (8 * WEFT_SCALAR_BYTES - 1);
    for (size_t channel = 0; channel < channels; channel++)
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            uint32_t value = 0;
            for (unsigned byte = 0; byte < WEFT_SCALAR_BYTES; byte++)
                value |= (uint32_t)in[scalar(channel, pixel, pixels) * WEFT_SCALAR_BYTES + byte] << 8 * byte;
            tensor[channel * pixels + pixel] = (int32_t)((int64_t)(value ^ sign) - (int64_t)sign);
        }
}

/* -- samples ------------------------------------------------------------------------------------------------------ */
int weft_decode_sample(uint64_t word, struct weft_sample *sample)
{
    sample->program_counter = (uint32_t)word;
    sample->valid = sample->ready = 0;
    for (unsigned i = 0; i < WEFT_SAMPLE_HANDSHAKES; i++) {
        sample->valid |= (uint8_t)((word >> (32 + 2 * i) & 1) << i);
        sample->ready |= (uint8_t)((word >> (33 + 2 * i) & 1) << i);
    }
    return word != ALL_WORDS;
}

void weft_profile_add(struct weft_profile *profile, const struct weft_sample *sample)
{
    profile->samples++;
    for (unsigned i = 0; i < WEFT_SAMPLE_HANDSHAKES; i++) {
        profile->offered[i] += sample->valid >> i & 1u;
        profile->taken[i] += (uint8_t)(sample->valid & sample->ready) >> i & 1u;
    }
}
