# SPDX-License-Identifier: Apache-2.0
"""Measure an image on a board from end to end: the real driver, models of its links, the machine's estimated cycles.

    python scripts/bench_links.py MODEL.tmodel --board ecpix5 [--images N] [--read-back]

Times are those of the line and the machine; what the host computes meanwhile is measured beside them."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from weft.boards import BOARDS
from weft.cli.estimate import estimated
from weft.runtime.devices import no_progress
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.runtime.session import Session
from weft.tb.bench.timed_board import SPEEDS, LinkSpeed, TimedBoard, images_of, timed
from weft.tmodel.network import Network

HEAD = ("| link | load s | bytes sent of those loaded | ms an image | of it machine | images/s | host CPU ms | "
        "end noticed |\n|---|---:|---:|---:|---:|---:|---:|---:|")


def row(speed: LinkSpeed, network: Network, seconds: float, images: int, witnessed: bool) -> str:
    """Return the row of a link."""
    region = Region(bus=0x4000_0000, machine=0, size=1 << 28)
    board = TimedBoard(network.arch, MemoryMap.shared(0x9000_0000, region), seconds)
    device, wire, carried = timed(speed, board, witnessed)
    given = images_of(network, images + 2)
    with device:
        device.load(network)
        first, sent = wire.now, len(carried)
        device.run(given[0])
        loaded, with_image = wire.now - first, sum(carried[sent:])
        sent = len(carried)
        device.run(given[1])
        of_image = sum(carried[sent:])
        began, cpu = wire.now, time.process_time()
        board.late.clear()
        for image in given[2:]:
            device.run(image)
        each, work = (wire.now - began) / images, (time.process_time() - cpu) / images
    part, = network.machines
    content = len(part.program) + sum(vectors.nbytes for _, vectors in (*part.consts, *part.dram0_consts))
    load, sent_once = loaded - each, (with_image - of_image) / content
    return (f"| {speed.kind} | {load:.2f} | {sent_once:.2f} | {1e3 * each:.1f} | {1e3 * seconds:.1f} | "
            f"{1 / each:.1f} | {1e3 * work:.0f} | {sum(board.late) / len(board.late):.3f} x |")


def main() -> None:
    """Print a table of one row for each link."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--board", choices=sorted(key for key, board in BOARDS.items() if board.shell),
                        default="ecpix5")
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--read-back", action="store_true", help="without the witness, as shells of 0.1")
    options = parser.parse_args()
    board, network = BOARDS[options.board], Network.load(options.model)
    cycles = sum(each.cycles for each in estimated(Session(network), board.dram, no_progress)[0])
    print(f"{network.name} on {options.board}: {cycles} cycles at {board.clock_hz / 1e6:g} MHz\n\n{HEAD}")
    for speed in SPEEDS:
        print(row(speed, network, cycles / board.clock_hz, options.images, not options.read_back), flush=True)


if __name__ == "__main__":
    main()
