# SPDX-License-Identifier: Apache-2.0
"""The trace for Perfetto: every bar says layer, instruction, operands, addresses; runs stand side by side."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from weft.cli.main import exit_code
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import NEVER, UNIT_NAMES
from weft.report.operations import Ran
from weft.report.texts import LONGEST
from weft.report.trace import chrome_trace
from weft.tmodel.network import Network


def bars(trace: dict[str, Any], process: int) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == process]


def test_every_operation_has_a_bar_and_none_overlap_in_a_unit(ran: Ran) -> None:
    found = bars(chrome_trace({"estimated": [ran, ran]}), 1)
    assert len(found) == 2 * len(ran.operations)
    for unit in range(len(UNIT_NAMES)):
        end = 0
        for bar in sorted((bar for bar in found if bar["tid"] == unit), key=lambda bar: int(bar["ts"])):
            assert bar["ts"] >= end and bar["dur"] > 0
            end = bar["ts"] + bar["dur"]
        assert end <= 2 * ran.cycles


def test_a_load_that_waits_for_its_turn_is_not_at_work(ran: Ran) -> None:
    """Its unit takes it while a MatMul has still to take over the weights before it; its bar begins behind that."""
    loads = np.flatnonzero(ran.work["unit"] == UNIT_NAMES.index("load_weight"))
    begins, ends = (cycles[loads] for cycles in ran.spans)
    rows = ran.work["size"][loads].astype(np.int64) + ran.work["zero_bias"][loads]
    waited = ends - np.maximum(ran.operations["start_cycle"][loads], np.concatenate([[0], ends[:-1]])) > 2 * rows
    assert waited.any(), "the network has such loads"
    assert (ends - begins)[waited].sum() < 1.5 * rows[waited].sum()


def test_bars_say_what_the_instruction_is(ran: Ran) -> None:
    model, isa = ran.model, Isa(ran.model.arch)
    instructions = list(isa.disassemble(model.program))
    layers = model.instruction_layers
    assert layers is not None
    for bar in bars(chrome_trace({"estimated": [ran]}), 1):
        said = bar["args"]
        instruction = instructions[said["program_counter"]]
        assert said["instruction"] == instruction_text(isa, instruction)
        assert said["layer"] == bar["name"] == model.layers[layers[said["program_counter"]]]["name"]
        assert said["issue_cycle"] <= said["start_cycle"] <= said["finish_cycle"] == bar["ts"] + bar["dur"] - 1
    moves = [bar["args"] for bar in bars(chrome_trace({"estimated": [ran]}), 1)
             if bar["args"]["instruction"].startswith("DataMove dram0_to_local")]
    size = sum(port.size for port in model.inputs)
    assert any(f"reads dram0 0..{size - 1}" in said["addresses"] or "reads dram0 0.." in said["addresses"]
               for said in moves)
    assert all({"local", "far", "size"} & said.keys() for said in moves)


def test_processes_and_tracks_have_names(ran: Ran) -> None:
    events = chrome_trace({"RTL": [ran], "estimated": [ran]})["traceEvents"]
    names = {(event["pid"], event["name"]): event["args"] for event in events
             if event["ph"] == "M" and event["name"] == "process_name"}
    assert names == {(1, "process_name"): {"name": "RTL: net"}, (2, "process_name"): {"name": "estimated: net"}}
    tracks = {(event["pid"], event["args"]["name"]) for event in events if event["name"] == "thread_name"}
    assert {(process, UNIT_NAMES[unit]) for process in (1, 2) for unit in ran.operations["unit"].tolist()} <= tracks


def test_what_never_finished_is_left_out(ran: Ran) -> None:
    stopped = ran.operations[:20].copy()
    stopped["finish_cycle"][15:] = NEVER
    assert len(bars(chrome_trace({"RTL": [dataclasses.replace(ran, operations=stopped)]}), 1)) == 15


def test_models_that_do_not_say_their_layers_have_bars_too(ran: Ran) -> None:
    model = dataclasses.replace(ran.model, layers=(), instruction_layers=None)
    found = bars(chrome_trace({"RTL": [dataclasses.replace(ran, model=model)]}), 1)
    assert {bar["args"]["layer"] for bar in found} == {None}
    assert {"MatMul", "LoadWeight", "DataMove"} <= {bar["name"] for bar in found}


def test_hostile_names_stay_short_and_plain(ran: Ran, hostile: Network) -> None:
    model, = hostile.machines
    text = json.dumps(chrome_trace({"RTL": [dataclasses.replace(ran, model=model)]}))
    assert text.isascii()
    assert all(len(bar["name"]) <= LONGEST and bar["name"].isprintable() for bar in bars(json.loads(text), 1))


def test_estimate_and_rtl_stand_in_one_file(tmp_path: Path, network: Network, monkeypatch: Any) -> None:
    """With a stand-in for the simulation that takes a cycle more before every start."""
    from weft.cycles.replay import estimate
    from weft.runtime import devices

    def traced(backend: devices.Local, groups: list[list[bytes]], *_: object) -> list[list[devices.Done]]:
        golden = devices.Golden(backend.arch)
        golden.drams.update(backend.drams)
        done = golden.run(groups)
        found = [estimate(program, backend.arch) for program, in groups]
        for each in found:
            for column in ("issue_cycle", "start_cycle", "finish_cycle"):
                each.operations[column] += 1
        return [[dataclasses.replace(ended, cycles=each.cycles + 1, operations=each.operations)]
                for (ended,), each in zip(done, found, strict=True)]

    monkeypatch.setattr(devices.Simulation, "run", traced)
    monkeypatch.setattr("weft.cli.running.need_simulation", lambda: None)
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 9, 8), np.float32))
    assert exit_code(["run", str(network.folder / f"{network.name}.tmodel"), "--on", "rtl", "--input",
                      str(tmp_path / "x.npy"), "--trace", str(tmp_path / "t.json")]) == 0
    trace = json.loads((tmp_path / "t.json").read_text())
    rtl, estimated = bars(trace, 1), bars(trace, 2)
    assert len(rtl) == len(estimated) > 0
    assert [(bar["name"], bar["args"]["instruction"]) for bar in rtl] == [
        (bar["name"], bar["args"]["instruction"]) for bar in estimated]
    assert {bar["args"]["start_cycle"] - other["args"]["start_cycle"]
            for bar, other in zip(rtl, estimated, strict=True)} == {1}
    assert {bar["args"]["layer"] for bar in rtl} == {row["name"] for row in network.machines[0].layers}
