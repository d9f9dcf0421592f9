// SPDX-License-Identifier: Apache-2.0
/* Starts the board's DRAM by LiteDRAM's registers, as soc.h has them. */
#ifndef WEFT_DRAM_H
#define WEFT_DRAM_H

void dram_start(void);

#endif
