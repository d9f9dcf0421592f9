# SPDX-License-Identifier: Apache-2.0
"""Who takes which memory when: turns of layers in stripes, what a part of a program begins with, chunks of cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.outputs import saved_for_readers
from weft.compiler.layers.stages import Add, Load, Product, Save
from weft.compiler.layers.var import Part, Var
from weft.compiler.lir import DRAM0, Address, Signal
from weft.compiler.memory.allocation import Allocation
from weft.compiler.scheduler import schedule as scheduler
from weft.compiler.scheduler.pool import Pool
from weft.compiler.scheduler.schedule import Free
from weft.compiler.scheduler.stripes import AHEAD, divided, turns
from weft.compiler.split.sync import synchronised
from weft.compiler.tiling.spans import Box
from weft.hw.contract.arch import Arch
from weft.tb.compile.test_split_rules import load, save, schedule

ARCH = Arch.load("tiny").replace(array_size=4, local_depth=256)
SIZE = 12, 4
"""Height and width of all tensors."""


# -- layers in stripes -------------------------------------------------------------------------------------------------
def drawn_steps(draw: np.random.Generator, halo: int) -> list[Any]:
    """Steps of a layer: boxes of rows, columns and channel tiles; each reads so many rows more on both sides."""
    rows, columns, tiles, passes = (int(draw.choice(sizes)) for sizes in ([1, 2, 5, 12], [2, 4], [1, 2], [1, 2]))
    places = [(row, column, tile) for row in range(0, SIZE[0], rows) for column in range(0, SIZE[1], columns)
              for tile in range(0, 2, tiles)]
    if draw.integers(2):  # all rows of one channel tile before the next
        places.sort(key=lambda place: place[2])
    found = []
    for row, column, tile in places:
        box = Box((tile, tile + tiles), (row, min(row + rows, SIZE[0])), (column, column + columns))
        reads = box.within((max(row - halo, 0), min(row + rows + halo, SIZE[0])), (0, SIZE[1]))
        found += [SimpleNamespace(region=box, core=box, input_tile=reads, complete=number == passes - 1, last=True)
                  for number in range(passes)]
    return found


def whole_after(steps: list[Any], rows: int) -> int:
    """Count the steps that are done when so many rows have all columns and channel tiles."""
    made: set[tuple[int, int, int]] = set()
    wanted = {(tile, row, column) for tile in range(2) for row in range(rows) for column in range(SIZE[1])}
    for number, step in enumerate(steps):
        if wanted <= made:
            return number
        if step.complete:
            made |= {(tile, row, column) for tile in range(*step.region.tiles) for row in range(*step.region.rows)
                     for column in range(*step.region.columns)}
    return len(steps)


@pytest.mark.parametrize("seed", range(60))
def test_a_layer_in_stripes_goes_on_when_its_rows_are_there(seed: int) -> None:
    """And one step more of each layer that it reads, as far as there is one; of several ready ones the last does."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 5))
    variables = [Var(f"v{number}", 8, *SIZE) for number in range(count + 1)]
    layers: list[Any] = []
    for number in range(count):
        adds = (Add(variables[int(draw.integers(number + 1))]),) if draw.integers(2) else ()
        layers.append(Layer(f"l{number}", Load(variables[number]), (Save(variables[number + 1]),), adds=adds))
    steps = [drawn_steps(draw, int(draw.integers(2))) for _ in layers]
    done, found = [0] * count, []

    def ready(number: int) -> bool:
        if done[number] == len(steps[number]):
            return False
        step = steps[number][done[number]]
        for maker in range(number):
            for var in layers[number].inputs:
                rows = max([step.input_tile.rows[1]] * (var == layers[number].core.input)
                           + [step.core.rows[1]] * any(add.input == var for add in layers[number].adds))
                if var == layers[maker].output and done[maker] < min(whole_after(steps[maker], rows) + AHEAD,
                                                                     len(steps[maker])):
                    return False
        return True

    while (last := max((number for number in range(count) if ready(number)), default=None)) is not None:
        found.append((last, done[last]))
        done[last] += 1
    assert done == [len(own) for own in steps]
    assert [*turns(layers, steps)] == found


@pytest.mark.parametrize("needs", [(3, 4, 5), (1, 1), (0, 0), (10, 1, 1)])
def test_layers_in_stripes_lie_apart_in_proportion(needs: tuple[int, ...]) -> None:
    found = divided(needs, 100)
    assert [buffer.base for buffer in found] == [sum(other.size for other in found[:number])
                                                 for number in range(len(found))]
    assert all(need <= buffer.size == need * 100 // max(sum(needs), 1) for need, buffer in zip(needs, found,
                                                                                             strict=True))


class Asked(Exception):
    """Ends what a test looks at no further."""


def test_layers_in_stripes_keep_below_what_is_pinned_for_any_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its part of local memory and of the accumulators, all of them together what is free for all."""
    given: list[tuple[int, int, int]] = []

    def emitter(number: int, pools: Any) -> Any:
        given.extend((number, memory, vector) for memory, pool in enumerate(pools) for buffer in [pool.largest()]
                     for vector in range(buffer.base, buffer.base + buffer.size))
        return SimpleNamespace(layer=None, steps=[])

    def stop(*_: object) -> Any:
        raise Asked

    monkeypatch.setattr(scheduler, "turns", stop)
    own = Free.__new__(Free)
    own.arch = ARCH
    need = SimpleNamespace(local_total=10, accumulator_total=5)
    own.layout = SimpleNamespace(plans=[SimpleNamespace(need=need)] * 3,  # type: ignore[assignment]
                                 shapes=[SimpleNamespace(scratch=scratch) for scratch in (90, 60, 75)])
    own._hold = lambda number: None  # type: ignore[method-assign]
    own._emitter = emitter  # type: ignore[method-assign]
    with pytest.raises(Asked):
        own.in_stripes(0, 1, 2, behind=0)
    for memory, depth in ((0, 60), (1, ARCH.accumulator_depth)):
        taken = [vector for _, where, vector in given if where == memory]
        assert len(taken) == len(set(taken)) and max(taken) < depth and len(taken) > depth - 3


@pytest.mark.parametrize(("first", "held"), [(0, "d"), (2, "abd"), (3, "bcd"), (4, "bcd"), (5, "cd"), (6, "d")])
def test_a_part_of_a_program_begins_with_what_is_pinned_across_its_beginning(first: int, held: str) -> None:
    """Live from a layer before up to the first one at least; inputs of the network are there before all layers."""
    places = {"a": (1, 2), "b": (1, 4), "c": (2, 5), "d": (-1, 9), "e": (3, 3)}
    local = {name: Allocation(name, 10 * number, 10, *life) for number, (name, life) in enumerate(places.items())}
    layout: Any = SimpleNamespace(local=local, copy=None)
    own = Free(None, layout, ARCH, first, (), ())  # type: ignore[arg-type]
    pool, free = own.pools.local, []
    while (buffer := pool.largest()).size:
        free.append((buffer.base, buffer.base + buffer.size))
        pool.hold(buffer)
    covered = {vector for low, high in free for vector in range(low, high)}
    assert covered == {*range(ARCH.local_depth)} - {vector for name in held for vector in range(
        local[name].base, local[name].base + 10)}


@pytest.mark.parametrize("seed", range(20))
def test_a_pool_hands_out_what_was_freed_longest_ago(seed: int) -> None:
    """Of all places where the vectors are free the one whose latest vector was freed first, of equals the lowest."""
    draw = np.random.default_rng(seed)
    depth, base = 24, int(draw.integers(3))
    pool, freed, now = Pool(depth, base), [0] * depth, 0
    taken: list[Any] = []
    for _ in range(60):
        if taken and draw.integers(2):
            buffer = taken.pop(int(draw.integers(len(taken))))
            pool.release(buffer)
            now += 1
            freed[buffer.base - base:buffer.base - base + buffer.size] = [now] * buffer.size
            continue
        size = int(draw.integers(1, 9))
        fits = [(max(freed[place:place + size]), place) for place in range(depth - size + 1)
                if max(freed[place:place + size]) < depth * 100]
        buffer = pool.take(size)
        assert (buffer is None) == (not fits)
        if buffer is not None:
            assert max(freed[buffer.base - base:buffer.base - base + size]) == min(fits)[0]
            freed[buffer.base - base:buffer.base - base + size] = [depth * 100] * size
            taken.append(buffer)


# -- cores -------------------------------------------------------------------------------------------------------------
def test_moves_before_saves_are_one_chunk_with_them() -> None:
    """A chunk ends with its saves, or with its layer."""
    def posts(*given: Any) -> list[Signal]:
        return [each for each in given if isinstance(each, Signal)]

    first, second = (each.operations for each in synchronised([
        schedule(load(9), save(1), layers=[0, 0]), schedule(save(9), load(1), layers=[1, 1])]))
    assert posts(*first) == [Signal(False, 0, 0b10, Address(DRAM0, 1), 9)] and len(posts(*second)) == 1
    apart, _ = (each.operations for each in synchronised([
        schedule(save(1), load(9), layers=[0, 0]), schedule(load(1), save(9), layers=[1, 1])]))
    assert len(posts(*apart)) == 2
    layers, _ = (each.operations for each in synchronised([
        schedule(load(9), save(1), layers=[0, 1]), schedule(save(9), load(1), layers=[2, 2])]))
    assert len(posts(*layers)) == 2


# -- outputs -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", ["core", "weights", "add", "second add"])
def test_every_reader_of_a_small_piece_reads_what_is_saved_for_it(place: str) -> None:
    piece, other = Var("b", 4, 4, 1, Part("out", 0, 0, 1, 1, 16)), Var("x", 4, 4, 1)
    maker = Layer("l", Load(Var("y", 4, 4, 1)), (Save(piece),))
    core = Product(piece if place == "core" else other, piece if place == "weights" else other, "p", 0)
    adds = {"add": (Add(piece),), "second add": (Add(other), Add(piece))}.get(place, ())
    made, reader = saved_for_readers([maker, Layer("r", core, (Save(Var("z", 4, 4, 1)),), adds=adds)], {"out"},
                                     ARCH.replace(local_depth=256))
    own = made.saves[0].var
    assert own.part is None and own.name == "b" and made.saves[1].var.part == piece.part
    read = [reader.core.input, reader.core.weights, *(add.input for add in reader.adds)]  # type: ignore[union-attr]
    assert read.count(own) == 1 and piece not in read and read.count(other) == len(read) - 1
