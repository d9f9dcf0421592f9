# SPDX-License-Identifier: Apache-2.0
"""The typed reader: every key is described, read, and held; what is hostile ends in one message."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import exit_code
from weft.schedule.keys import KEYS, RECORDS, keys_of, meaning
from weft.schedule.model import DRAM, WorkloadId
from weft.schedule.read import read_schedule, schedule_of
from weft.support.errors import WeftError
from weft.tb.bench import mesh_files

KINDS = ("ifmap", "weight", "ofmap")


def record_keys(record: str) -> set[str]:
    kinds = RECORDS[record]
    return {*keys_of(kinds.today), *keys_of(kinds.older)}


def test_every_key_has_a_meaning_and_every_meaning_a_key() -> None:
    all_keys = {record: record_keys(record) for record in RECORDS}
    for record, keys in all_keys.items():
        for key in keys:
            assert meaning(record, key).meaning
    used = {f"{record}.{key}" for record, keys in all_keys.items() for key in keys}
    used |= {key for record, keys in all_keys.items() for key in keys if f"{record}.{key}" not in KEYS}
    assert KEYS.keys() - used == set()


def test_files_of_both_dialects_have_every_key_of_the_table() -> None:
    for column, values in enumerate((mesh_files.today(), mesh_files.older())):
        works = [workload for key, each in values.items() if key.isdigit() for workload in each]
        pieces = [piece for workload in works for piece in workload["ofmap"]]
        tensors = [tensor for workload in works for tensor in workload["buffer"]]
        ifmaps = [workload["ifmap"] for workload in works]
        found: dict[str, list[dict[str, Any]]] = {
            "file": [values], "-1": [values["-1"]], "in": values["-1"]["in"], "out": values["-1"]["out"],
            "out.destination": [target for block in values["-1"]["out"] for target in block["destination"]],
            "workload": works, "ifmap": sum(ifmaps, []) if isinstance(ifmaps[0], list) else ifmaps,
            "weight": [workload["weight"] for workload in works if "weight" in workload], "ofmap": pieces,
            "ofmap.destination": [target for piece in pieces for target in piece["destination"]], "buffer": tensors,
            "source": [source for tensor in tensors for source in tensor.get("source", ())],
            "wl0_buffer": [place for workload in works for place in workload.get("wl0_buffer", ())],
            "tile_info": [tile for workload in works for tile in workload.get("tile_info", {}).values()]}
        optional = {"bitwidth"} if column == 0 else set()  # of an ofmap, where the description's example has none
        for record, kinds in RECORDS.items():
            keys = {key for entry in found[record] for key in entry if not key.lstrip("-").isdigit()}
            assert keys_of(kinds[column]).keys() - keys <= (optional if record == "ofmap" else set()), record


def test_a_workload_is_read_as_it_stands() -> None:
    for values, core, number in ((mesh_files.today(), 2, 4), (mesh_files.older(), 5, 18)):
        schedule = schedule_of(json.loads(json.dumps(values)))
        workload = schedule.by_id[WorkloadId(core, number)]
        given = next(each for each in values[str(core)] if each["workload_id"] == number)
        assert (workload.layer, workload.cycles) == ("joined", given["time"]) and workload.weight is not None
        assert (list(workload.box.lower), list(workload.box.upper)) == (given["workload"][0], given["workload"][1])
        assert [piece.transfer for piece in workload.pieces] == [each["transfer_id"] for each in given["ofmap"]]
        assert workload.ofmap_bits == workload.box.volume * 8 == 2 * workload.pieces[0].size_bits
        current = next(tensor for tensor in workload.buffer if tensor.kind == "ifmap" and tensor.box.volume
                       == workload.ifmaps[0].box.volume and tensor.transfers == workload.ifmaps[0].transfers)
        assert {source.core for source in current.sources} == {0, 1, 2, 3, DRAM} or {
            source.core for source in current.sources} == {1, 2, 5, 6, DRAM}


# -- hostile files -----------------------------------------------------------------------------------------------------
HOSTILE: dict[str, bytes] = {
    "nothing": b"", "a list": b"[]", "an empty object": b"{}", "deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "not UTF-8": b"\xff\xfe{}", "a key twice": b'{"xlen": 1, "xlen": 2}', "NaN": b'{"xlen": NaN}',
    "an integer of many digits": b'{"xlen": ' + b"9" * 9000 + b"}", "1e999": b'{"xlen": 1e999}',
    "no regular name": json.dumps({"\udcff": 1}).encode(), "cores of null": b'{"xlen":1,"ylen":1,"top_batch_cut":1,'
    b'"buffersize":1,"-1":{"in":[],"out":[]},"0":null}', "no workload": b'{"xlen":1,"ylen":1,"top_batch_cut":1,'
    b'"buffersize":1,"-1":{"in":[],"out":[]},"0":[]}', "a huge mesh": b'{"xlen":99999999,"ylen":1,"top_batch_cut":1,'
    b'"buffersize":1,"-1":{"in":[],"out":[]},"0":[{}]}', "an escape": b'{"\\u001b[31m": 1}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_message(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(HOSTILE[name])
    assert exit_code(["ir", "check", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said and "; allowed: " in said and "; way out: " in said


def test_places_that_are_no_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path, tmp_path / "nowhere", Path("/dev/zero")):
        assert exit_code(["ir", "check", str(place)]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_work_is_linear_in_what_related_blocks_and_destinations_name() -> None:
    """Blocks that all name each other, and readers that all list all: pairs stand in the file, triples would not."""
    values = mesh_files.older()
    readers = [{"id": 1, "type": "core", "workload_id": number} for number in range(2000)]
    values["-1"]["out"] = [{**block, "destination": readers, "related_ifmap": list(range(500))}
                           for block in (values["-1"]["out"][1],) * 50]
    for key in ("1", "2", "5", "6"):
        for workload in values[key]:
            workload["ifmap"]["transfer_id"] = list(range(3000))
    from weft.schedule.check import faults_of

    began = time.monotonic()
    assert faults_of(schedule_of(json.loads(json.dumps(values))))
    assert time.monotonic() - began < 10


def test_too_many_values_are_refused_before_they_are_parsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(b'{"-1": [' + b"1," * 2_000_001 + b"1]}")
    assert exit_code(["ir", "check", str(path)]) == 1
    assert "more than 2000000 values" in capsys.readouterr().err


def test_too_many_workloads_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.schedule.read.MOST_WORKLOADS", 27)
    with pytest.raises(WeftError, match="28 workloads on 4 cores; allowed: 1 to 27"):
        schedule_of(mesh_files.today())


# -- the command -------------------------------------------------------------------------------------------------------
def test_the_command_says_what_a_file_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(mesh_files.today()))
    assert exit_code(["ir", "check", str(path)]) == 0
    assert "4 cores, 7 layers, 28 workloads" in capsys.readouterr().out
    assert exit_code(["ir", "check", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["dialect"], said["counts"]["workloads"], said["faults"]) == ("today", 28, [])
    assert read_schedule(path).by_id.keys() == {WorkloadId(core, number) for core in range(4) for number in range(7)}


def test_the_command_lists_faults_and_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = mesh_files.today()
    values["2"][3]["ofmap_size"] = 1
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(values))
    assert exit_code(["ir", "check", str(path), "--json"]) == 1
    said = capsys.readouterr()
    (fault,) = json.loads(said.out)["faults"]
    assert (fault["core"], fault["workload"], fault["layer"], fault["key"]) == (2, 3, "right", "ofmap_size")
    assert "core 2, workload 3" in said.err and said.err.count("\n") == 1
    assert exit_code(["ir", "check", str(path)]) == 1
    assert "core 2, workload 3, layer right, key ofmap_size: found 8 bits" in " ".join(capsys.readouterr().out.split())
