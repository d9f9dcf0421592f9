# SPDX-License-Identifier: Apache-2.0
"""Write docs/blocks/: a page for each group of blocks, from their docstrings and their ports at the pynq preset.

    python scripts/block_pages.py [--check]

``--check`` writes nothing, and exits with code 1 if a page is not current."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from amaranth.hdl import Shape, ShapeCastable
from amaranth.lib import data, stream, wiring
from tables import table

from weft.hw.array.load_two_rows_unit import LoadTwoRowsUnit
from weft.hw.array.load_weight_unit import LoadWeightUnit
from weft.hw.array.mat_mul_unit import MatMulUnit
from weft.hw.array.matrix_unit import MatrixUnit
from weft.hw.array.multiplier import Multiplier
from weft.hw.array.paired_element import PairedElement
from weft.hw.array.paired_multiplier import PairedMultiplier
from weft.hw.array.processing_element import ProcessingElement
from weft.hw.array.systolic_array import SystolicArray
from weft.hw.bus.csr_slave import CsrSlave
from weft.hw.bus.dram_reader import DramReader
from weft.hw.bus.dram_writer import DramWriter
from weft.hw.bus.program_reader import ProgramReader
from weft.hw.contract.arch import Arch
from weft.hw.control.decoder import Decoder
from weft.hw.control.fetch import Fetch
from weft.hw.control.interlock import Interlock, Tracker, UnitQueue
from weft.hw.control.repeater import Repeater, StepHistory
from weft.hw.control.sampler import Sampler
from weft.hw.control.supervisor import Supervisor
from weft.hw.control.sync_unit import SyncUnit
from weft.hw.core import Core
from weft.hw.memory.accumulators import AccumulatorBank, Accumulators
from weft.hw.memory.input_rescaler import InputRescaler
from weft.hw.memory.local import LocalMemory
from weft.hw.memory.move_in import MoveInUnit
from weft.hw.memory.move_out import MoveOutUnit
from weft.hw.memory.output_functions import OutputFunctions
from weft.hw.memory.read_stream import ReadStream
from weft.hw.memory.requantizer import Requantizer
from weft.hw.memory.scaled_move_out import ScaledMoveOutUnit
from weft.hw.memory.scaler import Scaler
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.schemes.once import BiasRescaler
from weft.hw.parts.slices import PingPong, RegisterSlice, Stage
from weft.hw.parts.walker import Walker
from weft.hw.simd.alu import Alu
from weft.hw.simd.simd_unit import SimdUnit
from weft.hw.top import Top

FOLDER = Path(__file__).parents[1] / "docs" / "blocks"
GROUPS: dict[str, tuple[type, ...]] = {
    "Top level": (Top, Core),
    "Control": (Fetch, Repeater, StepHistory, Decoder, Interlock, Tracker, UnitQueue, SyncUnit, Walker, Supervisor,
                Sampler),
    "Systolic array": (MatrixUnit, SystolicArray, ProcessingElement, Multiplier, PairedElement, PairedMultiplier,
                       BiasRescaler, LoadWeightUnit, LoadTwoRowsUnit, MatMulUnit),
    "Memories": (LocalMemory, Accumulators, AccumulatorBank, Requantizer, OutputFunctions, InputRescaler, RoundRobin,
                 ReadStream, MoveOutUnit, ScaledMoveOutUnit, Scaler, MoveInUnit),
    "SIMD unit": (SimdUnit, Alu),
    "Buses": (DramReader, DramWriter, ProgramReader, CsrSlave, Stage, PingPong, RegisterSlice),
}
"""Title of a page -> the blocks on it."""
PORTS_AT_PRESET = (Top, Core, Fetch, Decoder, Supervisor, Sampler, SystolicArray, LoadWeightUnit, MatMulUnit,
                   MoveOutUnit, MoveInUnit, SimdUnit, DramReader, DramWriter, ProgramReader, CsrSlave)
"""Blocks that an architecture alone describes: their ports are listed."""

MACHINE = "../machine"
"""The pages of the machine, from those of the blocks."""

HEAD = f"""# Blocks

These pages list the main hardware blocks: what each promises, its named latencies, and its ports.
`scripts/block_pages.py` generates them from the blocks' docstrings; ports are those at the `pynq` preset. `hw/core.py`
joins the blocks. [The machine]({MACHINE}/README.md) says what they do together. Every latency has its name in
[latencies]({MACHINE}/latencies.md).

```
 beats --> Fetch --> Decoder --> Interlock -+-> LoadWeightUnit --+  LocalMemory <--> DramReader / DramWriter (0 and 1)
 ProgramReader --^   ConfigRegisters        +-> MatMulUnit ------+-> SystolicArray
 CsrSlave, Supervisor, Sampler              +-> SimdUnit --------+-> Accumulators (by Requantizer and InputRescaler)
                                            +-> MoveOutUnit, MoveInUnit
```

"""


def width_of(shape: object) -> str:
    """Return the bits of a payload, or its fields, as text."""
    if isinstance(shape, data.StructLayout) and len(list(shape)) <= 8:
        return ", ".join(f"{name} {Shape.cast(field.shape).width}" for name, field in shape)
    cast = Shape.cast(shape.as_shape() if isinstance(shape, ShapeCastable) else shape)
    return f"{cast.width} bit" + "s" * (cast.width > 1)


def ports(block: wiring.Component) -> list[str]:
    """Return a table row for each member of a block."""
    rows = ["| port | direction | carries |", "|---|---|---|"]
    for name, member in block.signature.members.items():
        direction = "out" if member.flow is wiring.Out else "in"
        if member.is_port:
            rows.append(f"| `{name}` | {direction} | {width_of(member.shape)} |")
        elif isinstance(member.signature, stream.Signature):
            payload = member.signature.members["payload"].shape
            rows.append(f"| `{name}` | stream {direction} | {width_of(payload)} |")
        else:
            channels = ", ".join(member.signature.members)
            kind = type(member.signature.flip() if direction == "in" else member.signature).__name__
            rows.append(f"| `{name}` | {direction} | {kind}: {channels} |")
    return rows


def page(block: type, arch: Arch) -> list[str]:
    """Return the lines of one block: where it is, what it promises, its named latencies, its ports."""
    module = inspect.getmodule(block)
    assert module is not None
    place = module.__name__.removeprefix("weft.").replace(".", "/") + ".py"
    lines = [f"## {block.__name__}", "", f"`{place}`", "", inspect.cleandoc(block.__doc__ or ""), ""]
    constants = [f"{name} = {value}" for name, value in vars(block).items()
                 if name.isupper() and isinstance(value, int)]
    lines += [f"Named cycles and counts: {', '.join(constants)}.", ""] if constants else []
    if block in PORTS_AT_PRESET:
        lines += [*ports(block(arch)), ""]
    return lines


def file_of(group: str) -> str:
    """Return the file name of a group's page."""
    return group.lower().replace(" ", "-") + ".md"


def index() -> str:
    """Return the page that lists the pages of the groups."""
    rows = [(f"[{group}]({file_of(group)})", ", ".join(f"`{block.__name__}`" for block in blocks))
            for group, blocks in GROUPS.items()]
    return HEAD + table(("page", "blocks"), rows)


def group_page(group: str, blocks: tuple[type, ...], arch: Arch) -> str:
    """Return the page of a group."""
    names = ", ".join(f"`{block.__name__}`" for block in blocks)
    lines = [f"# Blocks: {group}", "", f"This page says what these blocks promise: {names}.", "",
             "`scripts/block_pages.py` makes it of their docstrings. [Blocks](README.md) lists the other pages.", ""]
    for block in blocks:
        lines += page(block, arch)
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[Path, str]:
    """Return path -> text of every page of docs/blocks/."""
    arch = Arch.load("pynq")
    return {FOLDER / "README.md": index(),
            **{FOLDER / file_of(group): group_page(group, blocks, arch) for group, blocks in GROUPS.items()}}


def main() -> None:
    """Write the pages, or with --check exit with code 1 if one is not current."""
    found = {path: path.read_text() for path in FOLDER.glob("*.md")}
    new = pages()
    if "--check" in sys.argv:
        wrong = sorted(path.name for path in {*found, *new} if found.get(path) != new.get(path))
        if wrong:
            sys.exit(f"docs/blocks/: {', '.join(wrong)} not current; run: make docs")
        return
    for path, text in new.items():
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(path)


if __name__ == "__main__":
    main()
