// SPDX-License-Identifier: Apache-2.0
/* The network's parts, which weft board standalone wrote beside this. */
    .macro part name, file
    .balign 4
    .global \name\()_start
\name\()_start:
    .incbin "\file"
    .endm

    .section .network, "a"
    part network_consts0, "consts0.bin"
    part network_consts1, "consts1.bin"
    part network_preload, "preload.bin"
    part network_program, "program.bin"
    part network_images, "images.bin"
