// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include "soc.h"

static void character(char one)
{
    while (*(volatile uint32_t *)SOC_UART_TXFULL)
        ;
    *(volatile uint32_t *)SOC_UART_RXTX = (uint8_t)one;
}

void text(const char *characters)
{
    while (*characters)
        character(*characters++);
}

void number(uint64_t value)
{
    char digits[21];
    unsigned at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    text(digits + at);
}
