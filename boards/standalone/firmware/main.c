// SPDX-License-Identifier: Apache-2.0
/* Runs the images of the boot image through the network, and says the class of each on the UART.
 *
 * It is the C driver's example, too: a bus of loads and stores, bulk transfers, and a cache that nothing keeps coherent
 * with the machine. */
#include "dram.h"
#include "network.h"
#include "soc.h"
#include "text.h"
#include "weft_driver.h"

static uint32_t read_word(void *context, uint64_t address)
{
    (void)context;
    return *(volatile uint32_t *)(uintptr_t)address;
}

static void write_word(void *context, uint64_t address, uint32_t word)
{
    (void)context;
    *(volatile uint32_t *)(uintptr_t)address = word;
}

static void copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (((uintptr_t)to | (uintptr_t)from | bytes) % 4 == 0)
        for (size_t at = 0; at < bytes; at += 4)
            *(uint32_t *)(uintptr_t)(to + at) = *(const uint32_t *)(uintptr_t)(from + at);
    else
        for (size_t at = 0; at < bytes; at++)
            to[at] = from[at];
}

static void read_bulk(void *context, uint64_t address, void *content, size_t bytes)
{
    (void)context;
    copy(content, (const uint8_t *)(uintptr_t)address, bytes);
}

static void write_bulk(void *context, uint64_t address, const void *content, size_t bytes)
{
    (void)context;
    copy((uint8_t *)(uintptr_t)address, content, bytes);
}

/* VexRiscv's data cache writes through: nothing in it is dirty, and there is nothing to clean. It drops all lines by an
   instruction of its own. */
static void invalidate(void *context, uint64_t address, size_t bytes)
{
    (void)context, (void)address, (void)bytes;
    __asm__ volatile(".word 0x500f" ::: "memory");
}

static void barrier(void *context)
{
    (void)context;
    __asm__ volatile("fence" ::: "memory");
}

static void fail(const char *what, const struct weft_device *device, int result)
{
    text(what), text(": "), text(weft_error(result));
    text(", cause "), number(device->cause), text(", instruction "), number(device->program_counter), text("\nfailed\n");
    for (;;)
        ;
}

static void must(const char *what, const struct weft_device *device, int result)
{
    if (result != WEFT_OK)
        fail(what, device, result);
}

static void open(struct weft_device *device)
{
    const struct weft_bus bus = {.read = read_word, .write = write_word, .read_bulk = read_bulk,
                                 .write_bulk = write_bulk, .invalidate = invalidate, .barrier = barrier};
    const struct weft_place dram0 = {SOC_DRAM + NETWORK_DRAM0, NETWORK_DRAM0};
    const struct weft_place dram1 = {SOC_DRAM + NETWORK_DRAM1, NETWORK_DRAM1};
    const struct weft_place program = {SOC_DRAM + NETWORK_PROGRAM, NETWORK_PROGRAM};
    must("machine", device, weft_open(device, &bus, SOC_MACHINE, dram0, dram1, program));
}

static void put(struct weft_device *device, const struct weft_place *memory, const struct network_piece *pieces,
                size_t count, const uint8_t *content)
{
    for (size_t piece = 0; piece < count; piece++) {
        must("memory", device, weft_write(device, memory, pieces[piece].base, content, pieces[piece].vectors));
        content += (size_t)pieces[piece].vectors * WEFT_VECTOR_BYTES;
    }
}

/* Constants and programs to where the machine finds them; returns the size of the program. */
static uint32_t load(struct weft_device *device)
{
    uint32_t size;
    put(device, &device->dram1, network_consts1, NETWORK_CONSTS1, network_consts1_start);
    put(device, &device->dram0, network_consts0, NETWORK_CONSTS0, network_consts0_start);
    if (NETWORK_PRELOAD_BYTES) {
        must("preload", device, weft_load(device, network_preload_start, NETWORK_PRELOAD_BYTES, &size));
        must("preload", device, weft_run(device, size));
    }
    must("program", device, weft_load(device, network_program_start, NETWORK_PROGRAM_BYTES, &size));
    return size;
}

/* The number of the largest of an output's elements, and its class where the output is a classifier's. */
static uint32_t largest(struct weft_device *device, const struct network_output *output)
{
    uint32_t best = 0, element = 0;
    int32_t most = 0;
    for (element = 0; element < output->elements; element++) {
        int32_t value;
        uint8_t vector[WEFT_VECTOR_BYTES];
        const uint32_t at = output->positions ? output->positions[element] : element;
        must("answer", device, weft_read(device, &device->dram0, output->base + at / WEFT_ARRAY_SIZE, vector, 1));
        weft_unpack(vector + at % WEFT_ARRAY_SIZE * WEFT_SCALAR_BYTES, 1, 1, 1, &value);
        if (!element || value > most)
            most = value, best = element;
    }
    return best;
}

static void answer(struct weft_device *device, uint32_t image)
{
    text("image "), number(image), text(":");
    for (uint32_t output = 0; output < NETWORK_OUTPUTS; output++) {
        text(" "), text(network_outputs[output].name), text(" ");
        number(largest(device, &network_outputs[output])), text(",");
    }
    text(" "), number(device->cycles), text(" cycles\n");
}

int main(void)
{
    static struct weft_device device;
    text("weft: " NETWORK_NAME " on " SOC_BOARD ", "), number(NETWORK_IMAGES), text(" images\n");
    dram_start();
    open(&device);
    const uint32_t size = load(&device);
    const uint8_t *image = network_images_start;
    for (uint32_t count = 0; count < NETWORK_IMAGES; count++, image += NETWORK_IMAGE_BYTES) {
        put(&device, &device.dram0, network_inputs, NETWORK_INPUTS, image);
        must("image", &device, weft_start(&device, size));
        must("image", &device, weft_wait(&device));
        answer(&device, count);
    }
    text("done\n");
    return 0;
}
