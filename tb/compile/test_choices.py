# SPDX-License-Identifier: Apache-2.0
"""Choices by themselves: what counts of several, whose numbers they are, and where their limits lie."""

from __future__ import annotations

from typing import Any

import pytest

from weft.boards import BOARDS
from weft.compiler.choices import FORMULA, Choices, check_choices, digest_of, for_memory
from weft.compiler.errors import CompileError
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Load, Save
from weft.compiler.layers.var import Var
from weft.compiler.tiling.candidates import Tiling
from weft.compiler.tiling.cuts import Grain
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE

X, Y, Z = (Var(name, 8, 4, 4) for name in "xyz")
LAYERS = Layers([Layer("first", Load(X), (Save(Y),)), Layer("second", Load(Y), (Save(Z),))])
ONE, OTHER = (Tiling(Grain(1, 4, None), outputs, 1, 1, 1, 1, outputs_outer=False) for outputs in (1, 2))

BY_KEY: dict[str, tuple[Any, Any, Any]] = {
    "residents": ("y", True, False), "spread": ("y", False, True), "tilings": (1, ONE, OTHER), "paces": (1, 2, 3),
    "fetch_paces": (1, 3, 2), "stripes": (1, 2, 0), "order": (1, 1, 0)}
"""Field -> a key, a value and another one; the other fields have a value alone."""


def of(name: str, value: Any) -> Choices:
    """Choices with one field."""
    fields: dict[str, Any] = {name: value}
    return Choices(**fields)


@pytest.mark.parametrize("name", BY_KEY)
def test_of_choices_by_key_the_last_one_of_each_counts(name: str) -> None:
    key, value, another = BY_KEY[name]
    first, second, third = (of(name, each) for each in ({key: value}, {key: another}, {key + key: value}))
    assert first.plus(second) == second and second.plus(first) == first
    assert first.plus(third, second) == of(name, {key: another, key + key: value})
    assert first.plus(FORMULA) == FORMULA.plus(first) == first


@pytest.mark.parametrize(("name", "value", "another"), [("copy", True, False), ("copy", False, True),
                                                        ("fetch_pace", 3, 2)])
def test_of_other_choices_the_last_one_counts(name: str, value: object, another: object) -> None:
    first, second = (of(name, each) for each in (value, another))
    assert first.plus(second) == second and second.plus(first) == first
    assert first.plus(FORMULA) == FORMULA.plus(first) == first
    assert second.beyond(first) == second and first.beyond(first) == FORMULA


@pytest.mark.parametrize("name", BY_KEY)
def test_beyond_others_is_what_they_have_not_or_otherwise(name: str) -> None:
    key, value, another = BY_KEY[name]
    first = of(name, {key: value})
    assert first.beyond(FORMULA) == first and first.beyond(first) == FORMULA
    more = of(name, {key: value, key + key: value})
    assert more.beyond(first) == of(name, {key + key: value})
    changed = of(name, {key: another})
    assert changed.beyond(first) == changed and first.plus(changed.beyond(first)) == changed


def test_all_numbers_of_layers_become_places() -> None:
    """Layer 0 comes behind layer 2, which keeps its place and goes first."""
    moved = Choices({"y": True}, tilings={0: ONE}, paces={0: 3, 1: 4}, fetch_paces={1: 5}, stripes={2: 0}, order={0: 2})
    found = moved.by_place(3)
    assert moved.sequence(3) == (1, 2, 0)
    assert (found.tilings, found.paces, found.fetch_paces, found.stripes) == ({2: ONE}, {2: 3, 0: 4}, {0: 5}, {1: 0})
    assert found.residents == {"y": True}


@pytest.mark.parametrize(("choices", "words"), [
    *((of(name, {number: value}), f"layer {number}") for name, value in (
        ("tilings", ONE), ("paces", 3), ("fetch_paces", 3), ("stripes", 2), ("order", 0)) for number in (-1, 2)),
    (Choices(order={0: 2}), "layer 2"),
    *((of(name, {0: pace}), f"a pace of {pace}") for name in ("paces", "fetch_paces") for pace in (0, 65)),
    *((Choices(fetch_pace=pace), f"a pace of {pace}") for pace in (0, 65)),
    *((Choices(stripes={1: fewest}), f"{fewest} stripes of layer 1") for fewest in (-1, 65)),
    (Choices(residents={"w": False}), "tensor 'w'"), (Choices(spread={"w": False}), "tensor 'w'"),
    (Choices(layers="another"), "another network, machine or version")])
def test_what_is_just_beyond_is_refused(choices: Choices, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        check_choices(choices, LAYERS, BASE)


@pytest.mark.parametrize("choices", [
    *(Choices(tilings={number: ONE}, paces={number: 64}, fetch_paces={number: 1}, order={number: number})
      for number in (0, 1)),
    *(Choices(fetch_pace=pace, paces={0: pace}, fetch_paces={0: pace}) for pace in (1, 64)),
    *(Choices(stripes={1: fewest}) for fewest in (0, 64)),
    Choices(dict.fromkeys("xyz", True), dict.fromkeys("xyz", False), layers=digest_of(LAYERS, BASE))])
def test_what_is_just_within_is_taken(choices: Choices) -> None:
    check_choices(choices, LAYERS, BASE)


def test_choices_are_for_these_layers_and_all_keys_of_this_machine() -> None:
    own = digest_of(LAYERS, BASE)
    assert digest_of(Layers(reversed(LAYERS)), BASE) != own
    for keys in ({"local_banks": 2 * BASE.local_banks}, {"dram1_depth": 2 * BASE.dram1_depth}):
        assert digest_of(LAYERS, BASE.replace(**keys)) != own


@pytest.mark.parametrize(("keys", "pace"), [({}, 8), ({"array_size": 2}, 4)])
def test_loads_are_paced_by_what_a_beat_of_them_holds(keys: dict[str, int], pace: int) -> None:
    """Half cycles, twice as many for a bus that is shared: two cycles for 8 bytes, and one for a vector of 4."""
    assert for_memory(BOARDS["colorlight_i9"].dram, Arch.load("colorlight_i9").replace(**keys)) == Choices(
        fetch_pace=pace)
