# SPDX-License-Identifier: Apache-2.0
"""Cores are alike: Amaranth writes a module for each instance, and all cores but the first are left out again here.

This is done in RTLIL, before yosys makes Verilog of it: what reads it, a simulator's compiler above all, has that
much less to do."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MODULE = re.compile(r"^(?:attribute [^\n]*\n)*module \\(\S+)\n.*?^end\n", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<=\\port\$)\d+")
"""The number that Amaranth gives what passes a block's edge; it counts through the whole machine."""
SYSTEM = "weft_top.machine"


def share_core(text: str, cores: int) -> str:
    """Return the RTLIL of a system with one module for all cores. A core that is not as the first one stays."""
    modules = {match[1]: match[0] for match in _MODULE.finditer(text)}
    first = _of_core(modules, 0)
    wanted = {name: _numbered(module) for name, module in first.items()}
    system, gone = modules[SYSTEM], set()
    for core in range(1, cores):
        own = _of_core(modules, core)
        if {name: _numbered(module) for name, module in own.items()} == wanted:
            system = _pointed_to_first(system, core, own[_name(0)], first[_name(0)])
            gone |= {name.replace(_name(0), _name(core), 1) for name in own}
    return _MODULE.sub(lambda match: "" if match[1] in gone else system if match[1] == SYSTEM else match[0], text)


def _name(core: int) -> str:
    """Return the name of a core's module."""
    return f"{SYSTEM}.core{core}"


def _of_core(modules: Mapping[str, str], core: int) -> dict[str, str]:
    """Return a core's modules under the names of the first core's, by which they also call each other."""
    names = re.compile(rf"(?<=\\){re.escape(_name(core))}(?=[.\s])")
    return {name.replace(_name(core), _name(0), 1): names.sub(_name(0), module) for name, module in modules.items()
            if name == _name(core) or name.startswith(f"{_name(core)}.")}


def _numbered(module: str) -> str:
    """Return a module with numbers of its own, in the order in which they come."""
    numbers: dict[str, str] = {}
    return _NUMBER.sub(lambda match: numbers.setdefault(match[0], str(len(numbers))), module)


def _pointed_to_first(system: str, core: int, own: str, first: str) -> str:
    """Return the system with the first core's module in a core's place: its ports have other numbers."""
    ours, theirs = (dict.fromkeys(_NUMBER.findall(module)) for module in (own, first))
    number = dict(zip(ours, theirs, strict=True))
    cell = re.compile(rf"^  cell \\{re.escape(_name(core))} .*?^  end\n", re.MULTILINE | re.DOTALL)

    def replaced(match: re.Match[str]) -> str:
        text = match[0].replace(_name(core), _name(0), 1)
        return re.sub(r"(?<=^    connect \\port\$)\d+", lambda port: number[port[0]], text, flags=re.MULTILINE)

    return cell.sub(replaced, system)
