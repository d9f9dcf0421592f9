// SPDX-License-Identifier: Apache-2.0
#include "dram.h"

#include "soc.h"

#define SOFTWARE 0xeu /* of DFII_CONTROL: the processor gives the chip its commands */
#define HARDWARE 0x1u /* the controller does */

static void set(uintptr_t address, uint32_t value)
{
    *(volatile uint32_t *)address = value;
}

/* At least so many clock cycles: a turn takes more than one. */
static void wait(uint32_t cycles)
{
    for (volatile uint32_t turn = 0; turn < cycles; turn++)
        ;
}

void dram_start(void)
{
    static const struct soc_dram_step steps[] = SOC_DRAM_STEPS;
    set(SOC_SDRAM_DFII_CONTROL, SOFTWARE);
    for (unsigned step = 0; step < sizeof steps / sizeof *steps; step++) {
        if (steps[step].control) {
            set(SOC_SDRAM_DFII_CONTROL, steps[step].command);
        } else {
            set(SOC_SDRAM_DFII_PI0_ADDRESS, steps[step].address);
            set(SOC_SDRAM_DFII_PI0_BADDRESS, steps[step].bank);
            set(SOC_SDRAM_DFII_PI0_COMMAND, steps[step].command);
            set(SOC_SDRAM_DFII_PI0_COMMAND_ISSUE, 1);
        }
        wait(steps[step].wait);
    }
    set(SOC_SDRAM_DFII_CONTROL, HARDWARE);
}
