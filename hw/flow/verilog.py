# SPDX-License-Identifier: Apache-2.0
"""The machine as one synthesizable Verilog file."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator

from amaranth._toolchain.yosys import YosysError  # amaranth has no public name for it
from amaranth.back import rtlil, verilog
from amaranth.hdl import Module

from weft.hw.bus.axi import Ports
from weft.hw.contract.arch import Arch
from weft.hw.flow.one_core import share_core
from weft.hw.system import with_ports
from weft.support.errors import WeftError, explain

TOP_NAME = "weft_top"


def verilog_text(arch: Arch, *, trace: bool = False, board: str = "") -> str:
    """Return the Verilog of module ``weft_top``: ``clk``, ``rst``, the ports of ``top.py``, ``trace_*`` if asked for.

    ``board``: the name that the register BOARD shows as a code. Amaranth takes the yosys that the environment
    variable YOSYS names; ``simulate/toolchain.py`` finds one. Raise WeftError without a yosys that works."""
    return converted(*with_ports(arch, trace=trace, board=board), arch.cores)


def converted(module: Module, ports: Ports, cores: int) -> str:
    """Return the Verilog of what ``with_ports`` gave. Raise WeftError without a yosys that works."""
    try:
        with _without_collector():
            text = rtlil.convert(module, name=TOP_NAME, ports=ports, emit_src=False)
            text = verilog._convert_rtlil_text(share_core(text, cores) if cores > 1 else text)
    except YosysError as error:
        raise WeftError(explain("yosys", f"{os.environ.get('YOSYS') or 'none'}, which does not work "
                                f"({str(error).split('.')[0] or 'no answer'})", "a yosys that writes Verilog",
                                "unset the variable YOSYS, or name one that runs")) from None
    return shorten(text)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Let Python's collector of cycles rest for as long as the block runs.

    Amaranth's millions of objects live until it has converted them, and to look through them again and again is a
    third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def shorten(text: str) -> str:
    """Return equivalent Verilog with less text and less work for a simulator."""
    return fold_registers(collapse_repetitions(collapse_zero_memories(text)))


_ZERO_WORD = re.compile(r"^ *(\S+)\[(\d+)\] = (\d+)'[hdb]0+;\n", re.MULTILINE)


def collapse_zero_memories(text: str) -> str:
    """Replace one line for each zero word of a memory by a loop: simulators read the file several times faster.

    The loop's variable belongs to a named block: Verilog, unlike SystemVerilog, has no other place for it."""
    lines: list[str] = []
    pending: dict[str, tuple[int, int]] = {}
    numbers = itertools.count()

    def flush() -> None:
        for name, (count, width) in pending.items():
            lines.append(f"    begin : zero_words_{next(numbers)} integer i; "
                         f"for (i = 0; i < {count}; i = i + 1) {name}[i] = {width}'h0; end\n")
        pending.clear()

    for line in text.splitlines(keepends=True):
        match = _ZERO_WORD.match(line)
        if match and int(match[2]) == pending.get(match[1], (0, 0))[0]:
            pending[match[1]] = int(match[2]) + 1, int(match[3])
            continue
        flush()
        lines.append(line)
    return "".join(lines)


_REPETITION = re.compile(r"(?<=[{ ])((?:\\\S+ |[^\s,{}\\]+)(?: ?\[[^\]]*\])?)((?:, \1){2,})(?= ?[,}])")


def collapse_repetitions(text: str) -> str:
    """Write ``{ a, a, a }`` as ``{ {3{a}} }``.

    Sign extensions and masks come out bit by bit, and Verilator, which does not see through that, simulates a
    machine a tenth slower and takes longer to build it."""
    return _REPETITION.sub(lambda match: f"{{{match[2].count(', ' + match[1]) + 1}{{{match[1]}}}}}", text)


_MODULE = re.compile(r"^module .*?^endmodule\n", re.MULTILINE | re.DOTALL)
_NEXT = r"\\\$\d+ "
_WIRE = re.compile(_NEXT)
_DECLARATION = re.compile(rf"^  reg (?:signed )?(?:\[\d+:0\] )?(?P<next>{_NEXT});\n", re.MULTILINE)
_CLOCKED = re.compile(
    rf"^  always @\(posedge (?P<clock>\w+)\)\n    (?P<register>[^\s\[]+ ?) <= (?P<next>{_NEXT});\n", re.MULTILINE)
_COMBINATIONAL = re.compile(
    r"^  always @\* begin\n    if \(\\\$auto\S+ \) begin end\n(?P<body>.*?)^  end\n", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"^(?P<indent> +)(?P<target>\S+ )(?P<part>(?:\[[^\]]*\])?) *= ", re.MULTILINE)


def fold_registers(text: str) -> str:
    """Say what a register becomes where it is clocked: ``always @(posedge clk) if (enable) q <= d;``.

    Yosys writes a wire for the next value, ``always @* begin n = q; if (enable) n = d; end``, and clocks that. A
    simulator then computes and copies every register in every cycle. Verilator is a sixteenth faster with it, and what
    it makes is a quarter smaller. A next value that anything else reads stays as it is."""
    return _MODULE.sub(lambda module: _fold_module(module[0]), text)


def _fold_module(module: str) -> str:
    """Return a module with its registers folded."""
    clocked = {match["next"]: match for match in _CLOCKED.finditer(module)}
    mentions = Counter(_WIRE.findall(module))
    folded = set()

    def fold(block: re.Match[str]) -> str:
        targets = [match["target"] for match in _ASSIGNMENT.finditer(block["body"])]
        name = targets[0] if targets else ""
        only_clocked = mentions[name] == 2 + len(targets)  # where it is declared, clocked, and assigned
        if name not in clocked or set(targets) != {name} or not only_clocked:
            return block[0]
        folded.add(name)
        clock, register = clocked[name]["clock"], clocked[name]["register"]
        body = _ASSIGNMENT.sub(lambda match: f"{match['indent']}{register}{match['part']} <= ", block["body"])
        body = body.removeprefix(f"    {register} <= {register};\n")
        return f"  always @(posedge {clock}) begin\n{body}  end\n"

    module = _COMBINATIONAL.sub(fold, module)
    for gone in (_CLOCKED, _DECLARATION):
        module = gone.sub(lambda match: "" if match["next"] in folded else match[0], module)
    return module
