# SPDX-License-Identifier: Apache-2.0
"""The command ``weft board standalone``: a boot image with which a board answers without a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.boards import BOARDS
from weft.cli import console
from weft.support.errors import WeftError, explain


def standalone_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tmodel", help="A compiled network.", show_default=False)],
    board: Annotated[str, typer.Option("--board", metavar="BOARD", help="A name of `weft board list`.",
                                       show_default=False)],
    inputs: Annotated[Path, typer.Option("--input", metavar="FILE", help=".npz with an array [N, ...] for each "
                                         "input of the network.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--folder", metavar="DIR", help="Where image and sources go; the "
                                         "folder of an earlier image is replaced.", show_default=False)],
    images: Annotated[int, typer.Option("--images", min=1, max=1000, metavar="COUNT", help="How many images go into "
                                        "the boot image.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write a boot image of firmware, network and inputs, with which a board answers on its UART without a host."""
    from weft.boards.standalone import project
    from weft.runtime.arrays import read_arrays
    from weft.runtime.images import user_images
    from weft.tmodel.network import Network

    if board not in BOARDS:
        raise WeftError(explain("board", board, ", ".join(sorted(BOARDS)), "name one of them"))
    chosen = BOARDS[board]
    network = Network.load(model)
    program = project.program_of(network)
    arrays = read_arrays(inputs, [tensor.name for tensor in network.signature.inputs])
    packed = [{port.name: program.pack_input(port.name, values[port.name]) for port in program.inputs}
              for values in user_images(network, arrays, images)]
    with console.working("making shell and firmware"):
        found = project.write(chosen, network, packed, output)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    console.print_table(f"{chosen.name}: {output / found['image']}", {
        "image": f"{found['bytes']} bytes for offset {found['flash_offset']:#x} of the flash, {found['images']} images",
        "bitstream": f"weft board build {board} --standalone -o build/standalone",
        "flash": f"weft board flash {board} --permanent -o build/standalone",
        "then": f"weft board flash {board} --image {output / found['image']}",
        "listen": f"python -m serial.tools.miniterm PORT {found['baud']}"})
