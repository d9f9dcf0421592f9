# SPDX-License-Identifier: Apache-2.0
"""Place and route a machine on an ECP5-85: the clock it reaches, and every place that is too late.

``make pnr ARCH=ecpix5 MHZ=90``. It works in build/<arch>/pnr."""

from __future__ import annotations

import argparse
from pathlib import Path

from weft.boards import board_of
from weft.cli.console import progress
from weft.hw.contract.arch import Arch
from weft.hw.flow import ecp5, static_timing, synthesis
from weft.support.errors import run_script

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Place and route; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", default="ecpix5", help="a preset or a .tarch file")
    parser.add_argument("--mhz", type=int, default=90, help="the clock to aim for")
    parser.add_argument("--chip", choices=ecp5.CHIPS, help=f"default: the board's; without one {ecp5.DEFAULT_CHIP}")
    parser.add_argument("--placed", action="store_true", help="do not route: delays are guessed")
    parser.add_argument("--seed", type=int, default=1, help="of place and route")
    arguments = parser.parse_args()
    arch = Arch.load(arguments.arch)
    board = board_of(arguments.arch)
    chip = arguments.chip or (board.chip if board and board.chip in ecp5.CHIPS else ecp5.DEFAULT_CHIP)
    folder = ROOT / "build" / Path(arguments.arch).stem / "pnr"
    with progress() as bar:
        def tell(stage: str) -> None:
            bar(stage, 0, 0)

        tell("synthesis, some minutes")
        synthesis.synthesize(arch, "ecp5", folder, harness=True)
        found = ecp5.place_and_route(folder, ecp5.CHIPS[chip], arguments.mhz, seed=arguments.seed,
                                     route=not arguments.placed, tell=tell)
    print(f"{arguments.arch} on {chip}")
    print(ecp5.summary(found))
    print(static_timing.summary(static_timing.long_paths(folder / ecp5.DELAYS, 1e3 / arguments.mhz)))
    return 0


if __name__ == "__main__":
    run_script(main)
