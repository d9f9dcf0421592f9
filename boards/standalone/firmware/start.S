// SPDX-License-Identifier: Apache-2.0
/* The first instructions: it runs from the flash, with its variables on the chip. */
    .section .start, "ax"
    .global _start
_start:
    la sp, stack_end
    la t0, data_start
    la t1, data_end
    la t2, data_in_flash
1:  bgeu t0, t1, 2f
    lw t3, 0(t2)
    sw t3, 0(t0)
    addi t0, t0, 4
    addi t2, t2, 4
    j 1b
2:  la t0, bss_start
    la t1, bss_end
3:  bgeu t0, t1, 4f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 3b
4:  call main
5:  j 5b
