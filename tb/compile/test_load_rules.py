# SPDX-License-Identifier: Apache-2.0
"""Rules of loads, of lengths of programs, and of joined and split code, each by itself with numbers by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.backend import join, split
from weft.compiler.backend.encode import encode
from weft.compiler.choices import FORMULA
from weft.compiler.cores import AUTO, BATCH, LATENCY, SPLIT, THROUGHPUT
from weft.compiler.layers.stages import MaxPool
from weft.compiler.lir import DRAM0, DRAM1, LOCAL, Address, DataMove, LoadLut
from weft.compiler.lir_table import LirTable
from weft.compiler.quantize.consts import LayerConsts
from weft.compiler.scheduler import length, load
from weft.compiler.scheduler.buffers import Key
from weft.compiler.scheduler.load import (
    INPUT_TILE,
    LOAD_VECTORS,
    OUTPUT_BUFFER,
    ROUNDED,
    SCALES,
    WEIGHTS,
    Loader,
    WeightSource,
)
from weft.compiler.scheduler.mat_muls import MatMulEmitter, Template, _sides
from weft.compiler.tiling.spans import Box, View
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import KEY_ENTRIES, Opcode
from weft.hw.contract.registers import Register
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(array_size=4)


def loader(**values: object) -> Loader:
    """A loader with these attributes alone."""
    made = Loader.__new__(Loader)
    made.__dict__.update(values)
    return made


# -- loads -------------------------------------------------------------------------------------------------------------
def test_a_load_takes_the_dram_that_has_read_less_with_it() -> None:
    """DRAM0 only with a copy, and only where it then has not read more than DRAM1."""
    source = WeightSource(100)
    found = [source.address(far, size) for far, size in ((0, 4), (4, 6), (10, 4), (14, 3), (17, 2), (19, 6))]
    assert [str(each) for each in found] == ["dram1[0]", "dram1[4]", "dram0[110]", "dram0[114]", "dram0[117]",
                                             "dram1[19]"]
    assert source.read == {DRAM1: 16, DRAM0: 9}
    alone = WeightSource(None)
    assert {alone.address(far, 4).memory for far in range(4)} == {DRAM1}


def test_layers_of_few_pixels_share_a_source() -> None:
    """The count of what was read goes on from one to the next of them, and from no other."""
    many = WeightSource(100).of_layer(8, 8)
    many.address(0, 4)
    few = many.of_layer(7, 8)
    assert not many.few and few.few and not few.read
    few.address(0, 4)
    assert few.of_layer(1, 8) is few and not few.of_layer(8, 8).read and few.of_layer(8, 8).copy == 100
    assert many.of_layer(8, 8) is not many


def test_loads_of_tensors_count_all_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    move = DataMove(True, Address(LOCAL, 0), Address(DRAM0, 0), 5, rows=3)
    monkeypatch.setattr(load, "transfer", lambda *_: [move, move._replace(far=Address(DRAM1, 0), rows=1)])
    own = loader(source=WeightSource(None), homes={"x": None}, arch=ARCH, loads=[])
    own._load(SimpleNamespace(root="x"), None, None)  # type: ignore[arg-type]
    assert own.source.read == {DRAM0: 15, DRAM1: 5} and len(own.loads) == 2


@pytest.mark.parametrize(("size", "count", "sizes"), [
    (LOAD_VECTORS // 2, 3, [LOAD_VECTORS, LOAD_VECTORS // 2]), (LOAD_VECTORS, 2, [LOAD_VECTORS] * 2),
    (LOAD_VECTORS - 1, 2, [2 * LOAD_VECTORS - 2]), (3, 4, [12])])
def test_weights_that_follow_each_other_are_loaded_together(size: int, count: int, sizes: list[int]) -> None:
    """Until a load has LOAD_VECTORS; those with something between them are not."""
    def loads(between: int) -> list[tuple[int, int]]:
        pieces = [((size + between) * number, (size + between) * number + size) for number in range(count)]
        own = loader(source=WeightSource(None), arch=ARCH.replace(local_depth=1024), loads=[],
                     shape=SimpleNamespace(consts=SimpleNamespace(base=7)))
        step: Any = SimpleNamespace(region=SimpleNamespace(tiles=(0, count)))
        own._pieces = lambda step: pieces  # type: ignore[method-assign]
        places = own._weights(step, 50, True)
        assert places == {number: 50 + size * number - start for number, (start, _) in enumerate(pieces)}
        assert own._weights(step, 50, False) == places and len(own.loads) == len({*own.loads})
        return [(move.far.offset, move.size) for move in own.loads if isinstance(move, DataMove)]

    assert [found for _, found in loads(0)] == sizes and loads(0)[0][0] == 7
    assert loads(1) == [(7 + (size + 1) * number, size) for number in range(count)]


@pytest.mark.parametrize(("fresh", "room", "loaded"), [
    ((0, 1), "both", [(0, 0, KEY_ENTRIES + 8)]), ((0,), "both", [(0, 0, KEY_ENTRIES + 8)]),
    ((1,), "both", [(KEY_ENTRIES, KEY_ENTRIES, 8)]), ((), "both", []),
    ((0, 1, 2), "both", [(0, 0, KEY_ENTRIES + 8), (KEY_ENTRIES + 8, KEY_ENTRIES + 8, 8)]),
    ((0, 1), "one", [(0, 0, 8), (0, KEY_ENTRIES, 8)])])
def test_tables_are_loaded_with_the_keys_where_there_is_room(fresh: tuple[int, ...], room: str,
                                                             loaded: list[tuple[int, int, int]]) -> None:
    """Those that the SIMD unit has are left out. ``loaded``: place in local memory, place in DRAM1, vectors."""
    depth = 8
    consts = LayerConsts(0, (), 30, 0, 3, KEY_ENTRIES + 2 * depth if room == "both" else depth, fresh=fresh)
    own = loader(source=WeightSource(None), shape=SimpleNamespace(consts=consts))
    operations = [*own._tables(Address(LOCAL, 5), depth)]
    moves = [(move.local.offset - 5, move.far.offset - 30, move.size) for move in operations
             if isinstance(move, DataMove)]
    luts = [(lut.table, lut.local.offset - 5) for lut in operations if isinstance(lut, LoadLut)]
    assert moves == loaded
    assert luts == [(number, consts.table_piece(number, depth)[0] if room == "both" else 0) for number in fresh]


def test_tables_of_layers_of_few_pixels_come_from_either_dram() -> None:
    consts = LayerConsts(0, (), 30, 0, 3, KEY_ENTRIES + 16, fresh=(1,))
    for few, memory in ((True, DRAM0), (False, DRAM1)):
        source = WeightSource(100, few)
        source.read[DRAM1] = 50
        move, _ = loader(source=source, shape=SimpleNamespace(consts=consts))._tables(Address(LOCAL, 5), 8)
        assert isinstance(move, DataMove) and move.far.memory == memory


def test_buffers_are_released_where_no_later_step_finds_their_content() -> None:
    """Two input tiles and two scales stay, three groups of weights, one rounded result, and nothing else."""
    own = loader(tiling=SimpleNamespace(buffers=2, weight_slots=3))
    keys = [{kind: Key(kind, "abcab"[number]) for kind in (INPUT_TILE, WEIGHTS, SCALES)} for number in range(5)]
    needs = [{**dict.fromkeys(step.values(), 1), Key(ROUNDED, 4): 4, Key(OUTPUT_BUFFER, "y"): 2} for step in keys]
    endings = own.endings(needs)
    kinds = [sorted(key.kind for key in step) for step in endings]
    assert kinds[:2] == [[INPUT_TILE, OUTPUT_BUFFER, SCALES]] * 2  # a, b come again, when two others have passed
    assert kinds[2:] == [sorted([INPUT_TILE, OUTPUT_BUFFER, SCALES, WEIGHTS])] * 2 + [
        sorted([INPUT_TILE, OUTPUT_BUFFER, SCALES, WEIGHTS, ROUNDED])]


# -- lengths of programs -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("shape", "group", "tiles"), [
    ((8, 8, 3, 3), 1, 36), ((9, 5, 1, 1), 1, 6), ((8, 1, 3, 3), 8, 2 * 9), ((8, 4, 3, 3), 2, 2 * 9)])
def test_weight_tiles_are_counted(shape: tuple[int, ...], group: int, tiles: int) -> None:
    """With groups those of the outputs alone, as they may share tiles; passes take several taps."""
    assert length._weight_tiles(np.ones(shape), group, ARCH) == tiles
    taps: Any = SimpleNamespace(array_size=4, kernel_rows=2, row_taps=2)
    if group > 1:
        assert length._weight_tiles(np.ones(shape), group, taps) == 2 * 2 * 2
    empty = np.ones(shape)
    empty[:4] = 0
    if group == 1:
        assert length._weight_tiles(empty, 1, ARCH) == tiles - -(-shape[1] // 4) * shape[2] * shape[3]


@pytest.mark.parametrize(("loop", "maxima"), [(4, 0), (3, 2 * 3 * 9), (0, 2 * 3 * 9)])
def test_maxima_of_windows_beyond_a_loop_are_instructions(loop: int, maxima: int) -> None:
    """Of each pixel all but the first of its window, for each channel tile. Columns and rows apart are short."""
    layer: Any = SimpleNamespace(core=SimpleNamespace(size=(6, 6)), outputs=[SimpleNamespace(tiles=lambda lanes: 2)])
    arch = ARCH.replace(simd_loop_depth=loop, simd_registers_depth=1)
    assert length._maxima(layer, MaxPool(Window((2, 2), (2, 2)), (3, 3)), arch) == maxima
    assert length._maxima(layer, MaxPool(Window((3, 3)), (4, 4)), arch) == 0


def test_machines_that_are_named_have_room_for_the_program() -> None:
    """Of the same scheme, with more lanes and as much local memory: a quarter of the bytes for twice the lanes, and
    half as many again for good measure."""
    size = length.MOST_PROGRAM_BYTES + 1
    found = str(length._too_long(size, ARCH.replace(local_depth=512)))
    named = {name for name in ("zcu104", "pynq", "arty", "tiny") if f"-a {name}" in found}
    fitting = {name for name in ("zcu104", "pynq", "arty", "tiny")
               if (preset := Arch.load(name)).scheme.kind is ARCH.scheme.kind and preset.local_depth >= 512
               and 2 * size * (4 / preset.array_size) ** 2 < length.MOST_PROGRAM_BYTES}
    assert named == fitting and fitting
    none = str(length._too_long(size, ARCH.replace(local_depth=1 << 16)))
    assert "use a smaller model" in none and "-a " not in none


# -- code --------------------------------------------------------------------------------------------------------------
def configured(*operations: Any, joins: bool = False) -> list[str]:
    """The Configures of a program of one core, by register and value."""
    code, _ = encode(LirTable.of(operations), ARCH, joins)
    return [f"{Register(int(register)).name} {int(value)}" for opcode, _, register, value, _ in code.T.tolist()
            if opcode == Opcode.CONFIGURE]


def test_a_single_row_sets_no_pitch() -> None:
    """Rows and pitches are set where they change, and set back at the end."""
    one = DataMove(True, Address(LOCAL, 0), Address(DRAM0, 0), 5, local_pitch=9, far_pitch=9)
    assert configured(one, one) == configured() == []
    two = one._replace(rows=2)
    assert configured(one, two, two, one, two) == [
        "MOVE_ROWS 1", "MOVE_LOCAL_PITCH 9", "MOVE_FAR_PITCH 9", "MOVE_ROWS 0", "MOVE_ROWS 1", "MOVE_ROWS 0",
        "MOVE_LOCAL_PITCH 0", "MOVE_FAR_PITCH 0"]


@pytest.mark.parametrize(("alone", "rows"), [(True, ["all", "without", "without"]), (False, ["all"] * 3)])
def test_weights_stay_in_the_array_where_no_other_layer_loads_some(alone: bool, rows: list[str]) -> None:
    """Three steps with the same weights, of a layer that runs alone or beside another one."""
    view = View(0, Box((0, 1), (0, 2), (0, 2)))
    step: Any = SimpleNamespace(inputs=(0, 1), taps=(0, 1))
    prepared: Any = SimpleNamespace(step=step, input_tile=view, weights={0: 20})
    emitter = MatMulEmitter.__new__(MatMulEmitter)
    block = SimpleNamespace(bias=3)
    emitter.shape = SimpleNamespace(consts=SimpleNamespace(blocks=[block]), box=view.box,  # type: ignore[assignment]
                                    tiles=SimpleNamespace(alike_blocks=[(7, 0, 1)]))
    every, without = np.ones((2, 1)), np.ones((1, 1))
    key = 7, (0, 1), (0, 1), *_sides(view, view)
    emitter.templates = {key: Template(every, without, (5, True), True, (5, True))}
    emitter.alone, emitter.loaded = alone, None
    made = [emitter.operations(prepared, 0, view) for _ in range(3)]
    assert ["all" if each.rows is every else "without" for each in made] == rows
    assert all((each.weights, each.near, each.far) == (23, 0, 0) for each in made)


# -- code of several cores ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("joins", "cores", "cycles", "taken"), [
    (True, BATCH, (10, 9), True), (True, BATCH, (10, 10), False), (True, BATCH, (9, 10), False),
    (True, SPLIT, (10, 9), False), (False, BATCH, (10, 9), False)])
def test_reads_are_joined_where_that_saves_cycles(joins: bool, cores: str, cycles: tuple[int, int], taken: bool,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    plain, joined = (SimpleNamespace(content=content) for content in (b"plain", b"joined"))
    monkeypatch.setattr(join, "machine_code", lambda *_, **__: joined)
    monkeypatch.setattr("weft.cycles.system.cycles_an_image", lambda programs, arch: cycles[programs[0] == b"joined"])
    given: Any = SimpleNamespace(joins_reads=joins, cores=2, table=None, layers=None)
    request: Any = SimpleNamespace(cores=cores)
    assert (join.join_reads(request, given, given, plain) is joined) == taken  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "goal", "waits", "chosen", "all_cores", "taken"), [
    (AUTO, LATENCY, True, False, 9, True), (AUTO, LATENCY, True, False, 10, False),
    (AUTO, THROUGHPUT, True, False, 4, True), (AUTO, THROUGHPUT, True, False, 5, False),
    (AUTO, LATENCY, False, False, 9, False), (AUTO, LATENCY, True, True, 9, False),
    (BATCH, LATENCY, True, False, 9, False), (SPLIT, LATENCY, True, False, 99, True),
    (SPLIT, LATENCY, True, True, 99, True)])
def test_an_image_is_split_where_it_is_asked_for_or_sooner_done(
        mode: str, goal: str, waits: bool, chosen: bool, all_cores: int, taken: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """One core takes ten cycles for an image, two of them five on average."""
    alone, made = SimpleNamespace(content=b"one"), SimpleNamespace(codes=["all", "cores"])
    monkeypatch.setattr(split, "can_wait", lambda arch: waits)
    monkeypatch.setattr(split, "split_layers", lambda *_: made)
    monkeypatch.setattr(split, "cycles", lambda codes, arch: all_cores if codes == made.codes else 10)
    monkeypatch.setattr("weft.cycles.system.cycles_an_image", lambda programs, arch: 5)
    request: Any = SimpleNamespace(cores=mode, goal=goal)
    arch: Any = SimpleNamespace(cores=2)
    choices: Any = SimpleNamespace() if chosen else FORMULA
    none: Any = None
    found: Any = split.split(request, choices, none, none, none, none, arch, alone)  # type: ignore[arg-type]
    assert (found is made) == taken and (taken or found is split.ALONE)
