// SPDX-License-Identifier: Apache-2.0
/* Text on the UART. */
#ifndef WEFT_TEXT_H
#define WEFT_TEXT_H

#include <stdint.h>

void text(const char *characters);
void number(uint64_t value);

#endif
