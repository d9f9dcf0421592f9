"""Colorlight i9 (LFE5U-45F) on its extension board: 8 MB of SDR SDRAM, UART over the debugger's USB."""

from weft.boards.board import Board, Memory, Shell

BOARD = Board(
    key="colorlight_i9", name="Colorlight i9 v7.2", arch="colorlight_i9", part="LFE5U-45F", speed_grade="6",
    family="ecp5", routed={"colorlight_i9": 65.04e6}, flash_name="colorlight-i9",
    plug="The module in its extension board, and USB-C there (JTAG and UART of the DAPLink).",
    shell=Shell(
        platform="litex_boards.platforms.colorlight_i5:Platform", platform_options={"board": "i9", "revision": "7.2"},
        clocks="litex_boards.targets.colorlight_i5:_CRG", clock_hz=40e6,
        memory=Memory(kind="SDR", phy="GENSDRPHY", module="M12L64322A", rate="1:1", phases=1)))
