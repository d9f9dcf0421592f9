# SPDX-License-Identifier: Apache-2.0
"""Static timing of a routed FPGA design: the longest paths by group of registers, from nextpnr's delays (SDF).

nextpnr's own report names one path. A machine is slow in some ten places at once, and each placement takes minutes.
So all of these places are wanted, by where paths start and where they end."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_CELL = re.compile(r"\(INSTANCE (.*)\)\s*$")
_WIRE = re.compile(r"\(INTERCONNECT (\S+) (\S+) \(\d+:\d+:(\d+)\) \(\d+:\d+:(\d+)\)\)")
_ARC = re.compile(r"\(IOPATH (\S+) (\S+) \(\d+:\d+:(-?\d+)\)")
_SETUP = re.compile(r"\(SETUPHOLD \(posedge (\S+)\) \(posedge \S+\) \(-?\d+:-?\d+:(-?\d+)\)")
_CLOCK = re.compile(r"CLK|WCK")
_MADE_UP = re.compile(r"_(?:LUT4|TRELLIS|PFUMX|L6MUX21|CCU2C|DPR16X4|MULT18X18D)\S*")
PICOSECOND = 1e-3
"""A picosecond in nanoseconds."""


@dataclass
class Delays:
    """The delays of a design in ps, between pins named cell/pin.

    ``arcs``: pin -> (pin, delay) it drives. ``starts``: pins that a clock drives. ``ends``: the set-up times of pins
    that a clock samples."""

    arcs: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    starts: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """The paths between two groups of registers that are too long.

    ``count``: how many; ``longest``: the longest, in ns; ``path``: its pins, with the time at which each is reached."""

    start: str
    end: str
    count: int
    longest: float
    path: tuple[tuple[str, float], ...]


def read_delays(sdf: Path) -> Delays:
    """Return the delays of an SDF file."""
    found, cell = Delays(), ""
    with sdf.open() as lines:
        for line in lines:
            if match := _WIRE.search(line):
                found.arcs[match[1]].append((match[2], max(int(match[3]), int(match[4]))))
            elif match := _CELL.search(line):
                cell = match[1].strip()
            elif match := _ARC.search(line):
                pin, delay = f"{cell}/{match[2]}", int(match[3])
                if _CLOCK.match(match[1]):
                    found.starts[pin] = max(found.starts.get(pin, 0), delay)
                else:
                    found.arcs[f"{cell}/{match[1]}"].append((pin, delay))
            elif match := _SETUP.search(line):
                pin = f"{cell}/{match[1]}"
                found.ends[pin] = max(found.ends.get(pin, 0), int(match[2]))
    return found


def arrivals(delays: Delays) -> tuple[dict[str, int], dict[str, str]]:
    """Return the time when each pin settles at the latest, and the pin before it on that path.

    Times are in ps after the clock's edge."""
    waiting = Counter(target for arcs in delays.arcs.values() for target, _ in arcs)
    reached, before = dict(delays.starts), {}
    ready = deque(pin for pin in {*delays.arcs, *waiting} if not waiting[pin])
    while ready:
        pin = ready.popleft()
        for target, delay in delays.arcs.get(pin, ()):
            if pin in reached and reached[pin] + delay > reached.get(target, -1):
                reached[target], before[target] = reached[pin] + delay, pin
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return reached, before


def signal_of(pin: str) -> str:
    """Return the name of the register that a netlist's pin belongs to, with # for each number in the name."""
    name = pin.replace("\\", "").rpartition("/")[0]
    return re.sub(r"\d+", "#", _MADE_UP.sub("", name).replace("device.machine.", ""))


def long_paths(sdf: Path, period_ns: float) -> list[Group]:
    """Return the groups of paths longer than ``period_ns``, the longest first."""
    delays = read_delays(sdf)
    reached, before = arrivals(delays)
    late = sorted(((reached[pin] + setup, pin) for pin, setup in delays.ends.items()
                   if pin in reached and (reached[pin] + setup) * PICOSECOND > period_ns), reverse=True)
    counts: Counter[tuple[str, str]] = Counter()
    longest: dict[tuple[str, str], tuple[int, list[str]]] = {}
    for time, pin in late:
        path = list(_back(pin, before))[::-1]
        key = signal_of(path[0]), signal_of(pin)
        counts[key] += 1
        longest.setdefault(key, (time, path))
    return [Group(*key, counts[key], time * PICOSECOND, tuple((pin, reached[pin] * PICOSECOND) for pin in path))
            for key, (time, path) in longest.items()]


def _back(pin: str, before: dict[str, str]) -> Iterator[str]:
    """Yield the pins of a path from its end to its start."""
    yield pin
    while pin in before:
        pin = before[pin]
        yield pin


def summary(groups: list[Group], most: int = 30) -> str:
    """Return a line for each start of late paths: the longest path from there, their number, and where it ends."""
    worst: dict[str, Group] = {}
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.start] += group.count
        worst.setdefault(group.start, group)
    lines = [f"{sum(counts.values())} late ends of paths; the longest path and their number by where they start:"]
    lines += [f"{group.longest:6.2f} ns {counts[start]:6}  {start}  to  {group.end}"
              for start, group in list(worst.items())[:most]]
    return "\n".join(lines)
