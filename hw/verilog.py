"""The machine as one synthesizable Verilog file."""

from __future__ import annotations

import re

from amaranth.back import verilog

from weft.hw.arch import Arch
from weft.hw.top import with_ports

TOP_NAME = "weft_top"


def verilog_text(arch: Arch, *, trace: bool = False) -> str:
    """Verilog of module ``weft_top`` with ``clk``, ``rst`` and the ports of ``top.py``; ``trace_*`` if asked for.

    Amaranth takes the yosys that the environment variable YOSYS names; ``tb/lib/toolchain.py`` finds one.
    """
    module, ports = with_ports(arch, trace=trace)
    text = verilog.convert(module, name=TOP_NAME, ports=ports, emit_src=False)
    return collapse_repetitions(collapse_zero_memories(text))


_ZERO_WORD = re.compile(r"^ *(\S+)\[(\d+)\] = (\d+)'[hdb]0+;\n", re.MULTILINE)


def collapse_zero_memories(text: str) -> str:
    """Replace one line for each zero word of a memory by a loop: simulators read the file several times faster."""
    lines, pending = [], {}

    def flush() -> None:
        for name, (count, width) in pending.items():
            lines.append(f"    for (integer i = 0; i < {count}; i = i + 1) {name}[i] = {width}'h0;\n")
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
    """Write ``{ a, a, a }`` as ``{ {3{a}} }``: sign extensions and masks come out bit by bit, and Verilator, which does
    not see through that, simulates a machine a tenth slower and takes longer to build it."""
    return _REPETITION.sub(lambda match: f"{{{match[2].count(', ' + match[1]) + 1}{{{match[1]}}}}}", text)
