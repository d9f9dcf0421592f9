# SPDX-License-Identifier: Apache-2.0
"""Schedules of compiled networks, against a second reader that is written from the format's description alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.schedule import today
from weft.tb.compile.run_model import ModelMaker
from weft.tb.shared import shared

ROOT = Path(__file__).resolve().parents[3]
WORKLOAD_KEYS = {"buffer", "ifmap", "layer_name", "layer_type", "ofmap", "ofmap_size", "ring_buffer_info", "tile_info",
                 "tile_padding_tblr", "time", "wl0_buffer", "workload", "workload_id"}


# -- the second reader: it shares nothing with schedule/ ---------------------------------------------------------------
def slices(lower: list[int], upper: list[int]) -> tuple[slice, ...]:
    return tuple(slice(low, high + 1) for low, high in zip(lower, upper, strict=True))


def counted(whole: tuple[list[int], list[int]], boxes: list[tuple[list[int], list[int]]]) -> np.ndarray:
    """How often each element of the box ``whole`` lies in ``boxes``, which all lie in it."""
    origin = whole[0]
    counts = np.zeros([high - low + 1 for low, high in zip(*whole, strict=True)], int)
    for lower, upper in boxes:
        assert all(low >= first for low, first in zip(lower, origin, strict=True))
        assert all(high <= last for high, last in zip(upper, whole[1], strict=True))
        counts[slices([low - first for low, first in zip(lower, origin, strict=True)],
                      [high - first for high, first in zip(upper, origin, strict=True)])] += 1
    return counts


def spans(entry: dict[str, Any], rings: list[list[int]]) -> set[tuple[int, int]]:
    """The bytes of a tensor, (from, to); of one that is larger than its ring the ring."""
    base, size = next((base, size) for base, size in rings if base <= entry["address"] < base + size)
    end = entry["address"] + entry["size"]
    if entry["size"] > size:
        return {(base, base + size)}
    return {(entry["address"], end)} if end <= base + size else {(entry["address"], base + size), (base, end - size)}


def works_of(values: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """The workloads of every core."""
    return {int(core): works for core, works in values.items() if core.isdigit()}


def check_mesh(values: dict[str, Any]) -> None:
    """Everything that the description says of cores' workloads and of DRAM."""
    cores = works_of(values)
    assert list(cores) == list(range(values["xlen"] * values["ylen"]))
    inside = {block["transfer_id"]: block for block in values["-1"]["in"]}
    outside = {block["transfer_id"]: block for block in values["-1"]["out"]}
    sent = {piece["transfer_id"]: (core, work, piece) for core, works in cores.items() for work in works
            for piece in work["ofmap"]}
    pieces = sum(len(work["ofmap"]) for works in cores.values() for work in works)
    assert len(sent) + len(outside) == pieces + len(values["-1"]["out"])
    assert not sent.keys() & outside.keys()
    for core, works in cores.items():
        assert [work["workload_id"] for work in works] == list(range(len(works)))
        before: dict[int, int] = {}
        for work in works:
            assert WORKLOAD_KEYS <= work.keys() <= WORKLOAD_KEYS | {"weight"}
            check_results(core, work, inside, cores)
            check_reads(core, work, sent, outside)
            check_buffer(work, values["buffersize"])
            now = {entry["tensor_id"]: entry["address"] for entry in work["buffer"]}
            for entry in work["buffer"]:
                assert entry["newly_added"] == (entry["tensor_id"] not in before)
                assert before.get(entry["tensor_id"], entry["address"]) == entry["address"]
            before = now
    for number, block in inside.items():
        core, work, piece = sent[number]
        assert (block["lower"], block["upper"], block["core_id"], block["workload_id"]) == (
            piece["lower"], piece["upper"], core, work["workload_id"])
        assert all(number in outside[other]["related_ifmap"] for other in block["related_ofmap"])
    for name in {work["layer_name"] for works in cores.values() for work in works}:
        boxes = [work["workload"] for works in cores.values() for work in works if work["layer_name"] == name]
        highest = [max(axis) for axis in zip(*(upper for _, upper in boxes), strict=True)]
        assert (counted(([0, 0, 0, 0], highest), [(lower, upper) for lower, upper in boxes]) == 1).all()


def check_results(core: int, work: dict[str, Any], inside: dict[int, Any],
                  cores: dict[int, list[dict[str, Any]]]) -> None:
    """A workload's pieces lie in its box and are read; its tiles make up the box."""
    lower, upper = work["workload"]
    sizes = [high - low + 1 for low, high in zip(lower, upper, strict=True)]
    assert work["ofmap_size"] >= math.prod(sizes)
    for piece in work["ofmap"]:
        counted((lower, upper), [(piece["lower"], piece["upper"])])
        for target in piece["destination"]:
            if target["type"] == "DRAM":
                assert piece["transfer_id"] in inside
            else:
                reader = cores[target["core_id"]][target["workload_id"]]
                assert target["core_id"] != core or reader["workload_id"] > work["workload_id"]
                assert any(piece["transfer_id"] in ifmap["transfer_id"] for ifmap in reader["ifmap"])
    tiles = work["tile_info"].values()
    assert set(work["tile_info"]) == {f"tile_num_{number}" for number in range(len(tiles))}
    assert not tiles or (counted((lower, upper), [(tile["ofmap_lower"], tile["ofmap_upper"]) for tile in tiles])
                         == 1).all()
    assert not tiles or sum(tile["single_tile_time_pred"] for tile in tiles) == pytest.approx(work["time"])


def check_reads(core: int, work: dict[str, Any], sent: dict[int, Any], outside: dict[int, Any]) -> None:
    """Each element of each ifmap comes once, from whom it says; weights come from DRAM."""
    current = [entry for entry in work["buffer"] if entry.get("cur_wl_ifmap")]
    assert sorted(map(str, ([entry["lower"], entry["upper"], entry["transfer_id"]] for entry in current))) == sorted(
        map(str, ([ifmap["lower"], ifmap["upper"], ifmap["transfer_id"]] for ifmap in work["ifmap"])))
    own = {"core_id": core, "workload_id": work["workload_id"]}
    for entry in current:
        assert [source["transfer_id"] for source in entry["source"]] == entry["transfer_id"]
        whole = entry["lower"], entry["upper"]
        assert (counted(whole, [(source["lower"], source["upper"]) for source in entry["source"]]) == 1).all()
        for source in entry["source"]:
            if source["type"] == "core":
                sender, producer, piece = sent[source["transfer_id"]]
                assert source["layer_name"] == producer["layer_name"] and source["size"] == piece["size"]
                assert source["core_id"] == sender and {**own, "type": "core"} in piece["destination"]
                ends = [(source, "upper"), (source, "lower"), (piece, "lower"), (piece, "upper")]
                assert all(len(where[key]) == 4 for where, key in ends)
            else:
                assert own in [{key: target[key] for key in own}
                               for target in outside[source["transfer_id"]]["destination"]]
    if "weight" in work:
        (number,) = work["weight"]["transfer_id"]
        assert outside[number]["type"] == "weight" and outside[number]["size"] == work["weight"]["size"]
        assert [work["weight"][end][0] for end in ("lower", "upper")] == [end[1] for end in work["workload"]]


def check_buffer(work: dict[str, Any], size: int) -> None:
    """Tensors lie in rings, and no two of them have a byte in common."""
    rings = work["ring_buffer_info"]
    taken = sorted(span for entry in work["buffer"] for span in spans(entry, rings))
    assert all(end <= following for (_, end), (following, _) in zip(taken, taken[1:], strict=False))
    assert max(base + length for base, length in rings) <= size
    ends = sorted((base, base + length) for base, length in rings)
    assert all(end <= following for (_, end), (following, _) in zip(ends, ends[1:], strict=False))


# -- schedules of ours -------------------------------------------------------------------------------------------------
def written(model: Path, arch: str, folder: Path, *more: str) -> dict[str, Any]:
    path = folder / "schedule.json"
    assert exit_code(["schedule", str(model), "-a", arch, "-o", str(path), *more]) == 0
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def check_read_back(values: dict[str, Any]) -> None:
    """What is read is what was written: typed records and back."""
    for works in works_of(values).values():
        again = [json.loads(msgspec.json.encode(msgspec.convert(work, today.Workload))) for work in works]
        assert again == works
    assert json.loads(msgspec.json.encode(msgspec.convert(values["-1"], today.Dram))) == values["-1"]


@pytest.mark.parametrize("arch", ["pynq", "arty", "pynq_int8", "ecpix5_4"])
def test_a_schedule_is_what_a_second_reader_understands(arch: str, tmp_path: Path,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    values = written(ROOT / "models" / "digits" / "digits.onnx", arch, tmp_path)
    check_mesh(values)
    check_read_back(values)
    capsys.readouterr()
    assert exit_code(["ir", "check", str(tmp_path / "schedule.json")]) == 0


def test_weights_are_ranges_of_the_layers_own(tmp_path: Path) -> None:
    """All output channels, all inputs and the whole kernel, and nothing beyond."""
    maker = ModelMaker((1, 6, 12, 8), seed=5)
    maker.conv("x", 6, 24, (3, 5), group=2)
    values = written(maker.save(tmp_path / "net.onnx"), "arty", tmp_path)
    boxes = [work["weight"] for works in works_of(values).values() for work in works]
    assert [min(ends) for ends in zip(*(box["lower"] for box in boxes), strict=True)] == [0, 0, 0, 0]
    assert [max(ends) for ends in zip(*(box["upper"] for box in boxes), strict=True)] == [23, 2, 2, 4]


def test_times_are_the_estimators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ROOT / "models" / "digits" / "digits.onnx"
    values = written(model, "pynq", tmp_path)
    assert exit_code(["compile", str(model), "-a", "pynq", "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    assert exit_code(["estimate", str(tmp_path / "digits.tmodel"), "--json"]) == 0
    estimated = json.loads(capsys.readouterr().out)
    times = [work["time"] for work in values["0"]]
    assert sum(times) == estimated["cycles"]
    assert times[:-1] == [row["cycles"] for row in estimated["layers"][:-1]]


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf_tiny_resnet8", "squeezenet_v1_0_dc", "fsrcnn_x2"])
def test_schedules_of_other_networks(name: str, tmp_path: Path) -> None:
    """Residuals; channels that two layers fill, on 12 lanes; two outputs of a layer."""
    values = written(shared(f"models/{name}.onnx"), "pynq", tmp_path)
    check_mesh(values)
    check_read_back(values)
