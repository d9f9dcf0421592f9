# SPDX-License-Identifier: Apache-2.0
"""LambdaConcept ECPIX-5 85F: 512 MB of DDR3, UART, and Ethernet beside the machine of bytes.

Of 8 lanes those of bytes route beside the shell (docs/decisions/boards.md)."""

from weft.boards.board import Board, Memory, Shell
from weft.hw.contract.dram import LiteDram

BOARD = Board(
    key="ecpix5", name="LambdaConcept ECPIX-5 85F", arch="ecpix5_4",
    others=("ecpix5", "ecpix5_2x4", "ecpix5_4_lut", "ecpix5_int8"), uart_alone=("ecpix5_4", "ecpix5_2x4"),
    part="LFE5UM5G-85F", speed_grade="8", family="ecp5",
    target_hz=90e6, routed={"ecpix5_4": 75.35e6, "ecpix5_2x4": 75.28e6, "ecpix5_int8": 77.07e6, "ecpix5": None},
    platform="amaranth_boards.ecpix5:ECPIX585Platform", flash_name="ecpix5",
    flash_variants={"r03": "ecpix5_r03"},
    plug="Micro-USB (JTAG and UART of the FT2232; of revision R03 the FT4232, whose third channel is the UART); "
         "Ethernet if wanted beside ecpix5_int8, the board is 192.168.1.50.",
    shell=Shell(
        platform="litex_boards.platforms.lambdaconcept_ecpix5:Platform", platform_options={"device": "85F"},
        clocks="litex_boards.targets.lambdaconcept_ecpix5:_CRG", clock_hz=75e6,
        ethernet="liteeth.phy.ecp5rgmii:LiteEthPHYRGMII", ethernet_options={"rx_delay": 0.0},
        memory=Memory(kind="DDR3", phy="ECP5DDRPHY", module="MT41K256M16", rate="1:2", phases=2, dram=LiteDram(
            data_bits=16, word_bytes=16, phases=2, banks=8, rows=32768, row_bytes=2048, read_latency=13,
            write_latency=3, column_write_latency=3, t_rp=2, t_rcd=2, t_wr=2, t_wtr=2, t_refi=586, t_rfc=104, t_ccd=2,
            t_rrd=2, t_rc=5, t_ras=4, t_faw=4))))
