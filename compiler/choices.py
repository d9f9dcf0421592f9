# SPDX-License-Identifier: Apache-2.0
"""Choices tell a compilation what to do where it would otherwise follow its formulas. A file keeps them.

A :class:`Choices` names only what somebody chose; all else is as the formulas say. So ``FORMULA``, which names nothing,
leaves every program as it is. ``compiler/tuning/`` searches for choices; ``weft compile --choices`` reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft.compiler.errors import CompileError, refuse
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.sequence import first_broken, places, predecessors, sequence
from weft.compiler.layers.stages import Load
from weft.compiler.tiling.candidates import Tiling
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import DramModel, LiteDram
from weft.support.outputs import Kind, write_text
from weft.support.strict_json import read_object

VERSION = 3
"""The version of the file's form."""

KIND = Kind.of_head("choices that --tune wrote", r'\{\n "choices": \d')

SUFFIX = ".choices.json"
"""The ending of the file's name, behind the model's name."""

MOST_PACE = 64
"""The largest pace, in half cycles for a vector."""

MOST_STRIPES = 64
"""The most stripes that may be asked for."""


@dataclass(frozen=True)
class Choices:
    """The choices for one subgraph of a network.

    ``residents``, ``spread``: by Var, whether it stays in local memory, and whether it is spread over both DRAMs;
    ``copy``: whether DRAM0 holds all Consts too, None where the formula says. By layer number: ``tilings``, and
    ``paces`` and ``fetch_paces``, by which operations are put in order. A pace says for how many half cycles a vector
    through the SIMD unit counts, a fetch pace the same of a beat of a DRAM. ``fetch_pace``: the fetch pace of layers
    that ``fetch_paces`` does not name. ``stripes``, by the number of a layer that loads a tensor for the SIMD unit: the
    fewest stripes in which it runs together with layers before it, where these fit; with 0 it runs alone. ``order``, by
    the number of a layer that does not run at the place of its number: its place (``layers/sequence.py``). All numbers
    of layers are those of the formulas' sequence, until the step ``sequence`` counts in the chosen one."""

    residents: Mapping[str, bool] = field(default_factory=dict)
    spread: Mapping[str, bool] = field(default_factory=dict)
    copy: bool | None = None
    tilings: Mapping[int, Tiling] = field(default_factory=dict)
    paces: Mapping[int, int] = field(default_factory=dict)
    fetch_paces: Mapping[int, int] = field(default_factory=dict)
    fetch_pace: int | None = None
    stripes: Mapping[int, int] = field(default_factory=dict)
    order: Mapping[int, int] = field(default_factory=dict)
    layers: str = ""
    """Digest of the layers and the machine that these are for; none where they fit all."""

    def plus(self, *others: Choices) -> Choices:
        """Return these and what each of ``others`` names, the last of which counts."""
        found = self
        for other in others:
            found = replace(found, residents={**found.residents, **other.residents},
                            spread={**found.spread, **other.spread}, tilings={**found.tilings, **other.tilings},
                            paces={**found.paces, **other.paces},
                            fetch_paces={**found.fetch_paces, **other.fetch_paces},
                            stripes={**found.stripes, **other.stripes}, order={**found.order, **other.order},
                            fetch_pace=found.fetch_pace if other.fetch_pace is None else other.fetch_pace,
                            copy=found.copy if other.copy is None else other.copy)
        return found

    def beyond(self, base: Choices) -> Choices:
        """Return the choices that ``base`` does not have, or has otherwise."""
        return Choices(_beyond(self.residents, base.residents), _beyond(self.spread, base.spread),
                       self.copy if self.copy != base.copy else None, _beyond(self.tilings, base.tilings),
                       _beyond(self.paces, base.paces), _beyond(self.fetch_paces, base.fetch_paces),
                       self.fetch_pace if self.fetch_pace != base.fetch_pace else None,
                       _beyond(self.stripes, base.stripes), _beyond(self.order, base.order))

    def sequence(self, count: int) -> tuple[int, ...]:
        """Return the numbers of ``count`` layers in the order in which they run."""
        return sequence(count, self.order)

    def by_place(self, count: int) -> Choices:
        """Return these choices for ``count`` layers with the places at which layers run as their numbers."""
        if not self.order:
            return self
        at = places(self.sequence(count))
        return replace(self, tilings=_moved(self.tilings, at), paces=_moved(self.paces, at),
                       fetch_paces=_moved(self.fetch_paces, at), stripes=_moved(self.stripes, at))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, sorted, so that equal choices are equal text."""
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return {key: dict(sorted(value.items())) if isinstance(value, dict) else value for key, value in plain.items()}

    @property
    def key(self) -> str:
        """The choices as text, which is equal for equal choices."""
        return json.dumps(self.to_json())

    def text(self) -> str:
        """Return the choices as a line of text."""
        return self.key + "\n"


K = TypeVar("K")
V = TypeVar("V")


def _beyond(own: Mapping[K, V], base: Mapping[K, V]) -> dict[K, V]:
    return {key: value for key, value in own.items() if key not in base or base[key] != value}


def _moved(by_number: Mapping[int, V], at: Sequence[int]) -> dict[int, V]:
    return {at[number]: value for number, value in by_number.items()}


FORMULA = Choices()
"""Nothing was chosen."""

SHARED = 2
"""For how many times the cycles of its own a beat counts behind a controller that serves both windows and the program.

ResNet-20 takes 2 391 348 cycles on ULX3S with 1.5, 2 391 456 with 2, 2 411 763 with 1, and 2 524 848 as for an ideal
memory."""


def for_memory(dram: DramModel, arch: Arch) -> Choices:
    """Return the choices for programs on a board's memory: the pace of its loads; none for an ideal memory.

    A memory that takes several cycles for a beat, on a bus shared with writes, gets its loads earlier."""
    if not isinstance(dram, LiteDram):
        return FORMULA
    beat = min(arch.vector_bytes, arch.axi_data_width // 8)
    return Choices(fetch_pace=min(max(2 * SHARED * dram.beat_cycles(beat), 1), MOST_PACE))


def check_choices(choices: Choices, layers: Layers, arch: Arch) -> None:
    """Raise CompileError for choices that are for other layers or another machine."""
    if choices.layers and choices.layers != digest_of(layers, arch):
        raise refuse("choices", "those of another network, machine or version of the compiler",
                     "choices for just these layers on this machine", AGAIN)
    numbers = [*choices.tilings, *choices.paces, *choices.fetch_paces, *choices.stripes, *choices.order,
               *choices.order.values()]
    beyond = [number for number in numbers if not 0 <= number < len(layers)]
    if beyond:
        raise refuse("choices", f"layer {beyond[0]}", f"layers 0 to {len(layers) - 1}", AGAIN)
    paces = [*choices.paces.values(), *choices.fetch_paces.values(),
             *(() if choices.fetch_pace is None else (choices.fetch_pace,))]
    if any(not 1 <= pace <= MOST_PACE for pace in paces):
        raise refuse("choices", f"a pace of {max(paces, key=abs)}", f"1 to {MOST_PACE}", AGAIN)
    for number, fewest in choices.stripes.items():
        if not isinstance(layers[number].core, Load) or not 0 <= fewest <= MOST_STRIPES:
            raise refuse("choices", f"{fewest} stripes of layer {number}, {layers[number].name!r}",
                         f"0 to {MOST_STRIPES} of a layer that loads a tensor for the SIMD unit", AGAIN)
    if choices.order and (broken := first_broken(choices.sequence(len(layers)), predecessors(layers, arch.array_size))):
        number, other = broken
        found = f"layer {number}, {layers[number].name!r}, before layer {other}, {layers[other].name!r}"
        raise refuse("choices", found, "an order in which each layer comes behind what it needs", AGAIN)
    known = {var.root for layer in layers for var in (*layer.inputs, *layer.outputs)}
    for name in (*choices.residents, *choices.spread):
        if name not in known:
            raise refuse("choices", f"tensor {name!r}", "tensors between the network's layers", AGAIN)


AGAIN = "leave --choices out, or tune again with --tune"


def digest_of(layers: Layers, arch: Arch) -> str:
    """Return the digest of what choices are for: the layers as text, and all keys of the machine."""
    found = hashlib.sha256(layers.text().encode())
    found.update(json.dumps(arch.to_dict(), sort_keys=True, default=str).encode())
    return found.hexdigest()[:20]


# -- the file ----------------------------------------------------------------------------------------------------------
class _File(msgspec.Struct, forbid_unknown_fields=True):
    choices: int
    cycles: list[int]
    parts: list[Choices]


@dataclass(frozen=True)
class Chosen:
    """``parts``: the choices of each of the machine's parts; ``cycles``: estimated without them and with them."""

    parts: tuple[Choices, ...]
    cycles: tuple[int, int]


def write_choices(path: Path, parts: Sequence[Choices], cycles: tuple[int, int]) -> None:
    """Write the choices for each of the machine's subgraphs, and the cycles before and after.

    Raise WeftError if the file must not be written."""
    write_text(path, _content(parts, cycles), KIND)


def _content(parts: Sequence[Choices], cycles: Sequence[int]) -> str:
    content = {"choices": VERSION, "cycles": cycles, "parts": [part.to_json() for part in parts]}
    return json.dumps(content, indent=1) + "\n"


def read_choices(path: Path) -> Chosen:
    """Return the choices in a file. Raise WeftError for a file that :func:`write_choices` did not write."""
    form = "a file that --tune wrote"
    content = read_object(path, "choices file", form, AGAIN)
    try:
        found = msgspec.convert(content, _File, str_keys=True)
        written = json.loads(_content(found.parts, found.cycles))
        if len(found.cycles) != 2 or not found.parts or written != content:
            raise msgspec.ValidationError("keys or values that it does not have")
    except msgspec.ValidationError as error:
        raise _damaged(path, error, form) from None
    return Chosen(tuple(found.parts), (found.cycles[0], found.cycles[1]))


def _damaged(path: Path, error: Exception, form: str) -> CompileError:
    return refuse(f"choices file {path}", str(error), form, AGAIN)
