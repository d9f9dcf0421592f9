# SPDX-License-Identifier: Apache-2.0
"""Write a trace for Perfetto and chrome://tracing: runs side by side, each a process with a track for every unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.hw.contract.units import NEVER, OPERATION, UNIT_NAMES, unit_names
from weft.report.kinds import NOTE
from weft.report.operations import Ran, operands
from weft.report.texts import shown

Event = dict[str, Any]


def chrome_trace(processes: Mapping[str, Sequence[Ran]]) -> dict[str, Any]:
    """Return the trace of processes, such as RTL and estimate, each with programs that ran one after the other.

    A microsecond stands for a cycle. A bar has its layer's name. Its arguments are the layer, the instruction, its
    operands, the addresses that it reads and writes, and when it was issued, started and finished. Operations that
    never finished are left out."""
    events: list[Event] = []
    for process, (title, programs) in enumerate(processes.items(), 1):
        events += _names(process, title, programs)
        offset = 0
        for ran in programs:
            events += _bars(process, ran, offset)
            offset += ran.cycles
    return {"otherData": NOTE, "traceEvents": events}


def _names(process: int, title: str, programs: Sequence[Ran]) -> Iterator[Event]:
    """Yield the events that name a process and its tracks."""
    name = f"{title}: {shown(programs[0].model.name)}" if programs else title
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}
    for unit in unit_names(programs[0].model.arch) if programs else ():
        track = {"ph": "M", "pid": process, "tid": UNIT_NAMES.index(unit)}
        yield {**track, "name": "thread_name", "args": {"name": unit}}
        yield {**track, "name": "thread_sort_index", "args": {"sort_index": track["tid"]}}


def _bars(process: int, ran: Ran, offset: int) -> Iterator[Event]:
    """Yield the bars of one program, ``offset`` cycles later."""
    columns = [name for name in OPERATION.names or () if name != "unit"]
    begins, ends = (column.tolist() for column in ran.spans)
    rows = zip(begins, ends, ran.operations["unit"].tolist(), ran.operations[columns].tolist(), ran.layers.tolist(),
               ran.texts, ran.addresses, strict=True)
    for begin, end, unit, times, number, text, addresses in rows:
        if end == NEVER:
            continue
        layer = ran.layer_names[number] if 0 <= number < len(ran.layer_names) else None
        yield {"ph": "X", "pid": process, "tid": unit, "name": layer or text.partition(" ")[0], "cat": UNIT_NAMES[unit],
               "ts": offset + begin, "dur": end - begin,
               "args": {"layer": layer, "instruction": text, **operands(text), "addresses": addresses,
                        **dict(zip(columns, times, strict=True))}}
