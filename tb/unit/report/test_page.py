# SPDX-License-Identifier: Apache-2.0
"""The page as a file: whole, without a network, its data what the estimator says; names are never markup."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.cycles.program import MEMORIES, WORK
from weft.hw.contract.arch import Arch
from weft.hw.contract.units import OPERATION, UNIT_NAMES, Memory
from weft.report.collect import Machine, _numbers, lanes_used, page_data, roof_point
from weft.report.columns import packed
from weft.report.live import SAMPLES, memory_over_time
from weft.report.operations import Ran
from weft.report.page import LIBRARY, plot_library
from weft.report.picture import nodes
from weft.report.texts import LONGEST, in_html, script_json, shown
from weft.tb.unit.report.conftest import HOSTILE, small_network
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

Made = Callable[[Network, Path], Path]


class Page(HTMLParser):
    """Collects the tags, and the text of each script by its id."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.inside: str | None = None
        self.feed(content)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.inside = dict(attributes).get("id") or f"script{len(self.scripts)}"
            self.scripts[self.inside] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts[self.inside] += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts["data"])


def test_page_loads_nothing_from_outside(network: Network, made: Made, tmp_path: Path) -> None:
    page = Page(made(network, tmp_path).read_text())
    assert not [tag for tag, given in page.tags if {"src", "href"} & set(given) and tag != "a"]
    assert all(given["href"].startswith("#") for tag, given in page.tags if tag == "a" and given["href"])
    policy = next(given["content"] for tag, given in page.tags if given.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'") and policy.count("'sha256-") == 2


def test_page_says_what_the_estimator_says(network: Network, ran: Ran, made: Made, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    data = Page(made(network, tmp_path).read_text()).data
    assert exit_code(["estimate", str(network.folder / f"{network.name}.tmodel"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert data["cycles"] == said["cycles"] == ran.cycles
    for layer, row in zip(data["layers"], said["layers"], strict=True):
        assert (layer["cycles"], layer["waits"], layer["utilization"]) == (row["cycles"], row["waits"],
                                                                          row["utilization"])
        assert layer["useful"] + layer["idle"] + sum(layer["waits"].values()) == pytest.approx(layer["cycles"], abs=0.2)
        assert sum(layer["dram"].values()) == row["dram0_bytes"] + row["dram1_bytes"]


def test_columns_are_the_operations(ran: Ran) -> None:
    meaning, columns = packed([ran, ran])
    count = 2 * len(ran.operations)
    assert meaning["operations"] == sum(meaning["counts"]) == count
    begin, length, layer, text = np.frombuffer(gzip.decompress(base64.b64decode(columns["columns"])),
                                               "<i4").reshape(4, count)
    begin = np.cumsum(begin)
    lines = gzip.decompress(base64.b64decode(columns["texts"])).decode().split("\n")
    begins, ends = ran.spans
    units = np.repeat([UNIT_NAMES.index(name) for name in meaning["units"]], meaning["counts"])
    expected = sorted((int(ran.operations["unit"][index]), int(begins[index]) + again * ran.cycles,
                       int(ends[index] - begins[index]), int(ran.layers[index]) + again * len(ran.model.layers),
                       f"{ran.texts[index]}\t{ran.addresses[index]}")
                      for index in range(len(begins)) for again in (0, 1))
    found = zip(units.tolist(), begin.tolist(), length.tolist(), layer.tolist(), (lines[each] for each in text),
                strict=True)
    assert sorted(found) == expected
    order = list(zip(units.tolist(), begin.tolist(), strict=True))
    assert order == sorted(order)  # the page looks for the operation under the pointer by halves


def test_an_operation_begins_when_its_unit_has_ended_the_one_before() -> None:
    """It is taken earlier; another unit's operations do not count."""
    model: Any = SimpleNamespace(arch=Arch.load("tiny"))
    times = [(0, 0, 4), (1, 2, 3), (0, 3, 9), (0, 12, 12)]
    operations = np.zeros(4, OPERATION)
    for row, (unit, start, finish) in zip(operations, times, strict=True):
        row["unit"], row["start_cycle"], row["finish_cycle"] = unit, start, finish
    ran = Ran(model, b"", 20, operations)
    vars(ran)["work"] = np.zeros(4, WORK)  # no LoadWeight among them
    vars(ran)["work"]["unit"] = UNIT_NAMES.index("simd")
    begins, ends = ran.spans
    assert (begins.tolist(), ends.tolist()) == ([0, 2, 5, 12], [5, 4, 10, 13])


def test_a_later_image_has_the_layers_of_the_first(ran: Ran) -> None:
    once = ran.layers
    twice = dataclasses.replace(ran, program=ran.program * 2, operations=np.concatenate([ran.operations] * 2))
    assert twice.layers.tolist() == [*once, *once] and len({*once}) > 1


def test_a_layer_that_the_model_does_not_tell_of_is_not_known(ran: Ran) -> None:
    few = dataclasses.replace(ran, model=dataclasses.replace(ran.model, layers=ran.model.layers[:1]))
    _, data = packed([few])
    columns = np.frombuffer(gzip.decompress(base64.b64decode(data["columns"])), "<i4").reshape(4, -1)
    assert {*columns[2]} == {-1, 0}


@pytest.mark.parametrize(("cycles", "moved", "point"), [
    (100, 80, {"macs_per_byte": 50, "macs_per_cycle": 40}), (100, 8000, {"macs_per_byte": 0.5, "macs_per_cycle": 4}),
    (0, 80, None), (100, 0, None)])
def test_a_layer_takes_as_long_as_its_port_if_that_moves_longer(cycles: int, moved: int,
                                                                point: dict[str, float] | None) -> None:
    """Of 4000 multiply-accumulates, at 8 bytes a cycle."""
    assert roof_point(4000, cycles, moved, Arch.load("tiny").replace(axi_data_width=64)) == point


def test_layers_of_every_program_say_when_they_run(network: Network, ran: Ran) -> None:
    machine = Machine("tiny", 1e8, True, "routed", None)
    totals = dict.fromkeys(("cycles", "macs", "done_macs", "utilization", "waits", "tail"), 0)
    found = page_data(network, machine, [(ran, []), (ran, [])], totals)["layers"]
    begins, ends = ran.spans
    for number, layer in enumerate(found):
        part, mine = divmod(number, len(ran.model.layers))
        own = [index for index in range(len(begins)) if ran.layers[index] == mine]
        assert layer["begin"] == part * ran.cycles + min(int(begins[index]) for index in own)
        assert layer["end"] == part * ran.cycles + max(int(ends[index]) for index in own)
        assert (layer["part"], layer["cycles"]) == (part, 0)  # no rows: nothing is known of its cycles


def live_by_hand(ran: Ran, memory: Memory, instant: float) -> int:
    """Vectors that hold at ``instant`` what is read later: address by address, from every access there is."""
    accesses: dict[int, list[tuple[int, bool]]] = {}
    begins, ends = ran.spans
    for index, work in enumerate(ran.work):
        for operand in (0, 1):
            if work[f"memory{operand}"] != MEMORIES.index(memory):
                continue
            writes = work[f"writes{operand}"] and not work["accumulate"]
            row, vector = np.mgrid[:work["rows"], :work["size"]]
            walk = work[f"base{operand}"] + row * work[f"pitch{operand}"] + vector * work[f"stride{operand}"]
            for address in walk.ravel().tolist():
                accesses.setdefault(address, []).append((int(begins[index] if writes else ends[index]), bool(writes)))
    count = 0
    for found in accesses.values():
        written, read = 0, -1
        for cycle, writes in [*found, (0, True)]:
            if writes:
                count += written <= instant <= read
                written, read = cycle, -1
            else:
                read = cycle
    return count


@pytest.mark.parametrize("memory", [Memory.LOCAL, Memory.ACCUMULATORS, Memory.DRAM1])
def test_live_vectors_are_those_still_to_be_read(ran: Ran, memory: Memory) -> None:
    found = memory_over_time(ran)
    step = ran.cycles / SAMPLES
    for index in range(0, SAMPLES, 59):
        assert found["live"][memory.value][index] == live_by_hand(ran, memory, index * step), index
    assert max(found["live"][memory.value]) > 0


def test_dram_holds_inputs_first_and_outputs_last(ran: Ran) -> None:
    """Inputs, and constants where DRAM0 holds some that the program reads from there."""
    live = memory_over_time(ran)["live"]["dram0"]
    read = np.zeros(ran.model.arch.dram0_depth, bool)
    for work in ran.work[ran.work["memory1"] == MEMORIES.index(Memory.DRAM0)]:
        if not work["writes1"]:
            row, vector = np.mgrid[:work["rows"], :work["size"]]
            read[work["base1"] + row * work["pitch1"] + vector * work["stride1"]] = True
    constants = sum(int(read[file.base:file.base + file.size].sum()) for file in ran.model.const_files
                    if file.memory == Memory.DRAM0.value)
    assert live[0] == constants + sum(port.size for port in ran.model.inputs)
    assert live[-1] == sum(port.size for port in ran.model.outputs)


def test_traffic_is_all_that_moves(ran: Ran) -> None:
    found = memory_over_time(ran)
    moved = sum(np.sum(rates) for rates in found["traffic"].values()) * ran.cycles / SAMPLES
    dram = [MEMORIES.index(memory) for memory in (Memory.DRAM0, Memory.DRAM1)]
    vectors = (ran.work["size"] * ran.work["rows"])[np.isin(ran.work["memory1"], dram)].sum()
    assert moved == pytest.approx(vectors * ran.model.arch.vector_bytes, rel=1e-3)


# -- the picture -------------------------------------------------------------------------------------------------------
def test_picture_has_the_machines_layers_and_the_hosts_nodes(network: Network) -> None:
    found = nodes(network)
    assert [node["where"] for node in found] == ["network", *["machine"] * 4, *["host"] * (len(found) - 6), "network"]
    assert [node["after"] for node in found[1:5]] == [[0], [1], [1, 2], [3]]
    assert {"Softmax"} <= {node["detail"] for node in found}
    assert found[-1]["after"] == [len(found) - 2]


def test_layers_of_all_programs_are_counted_together(network: Network) -> None:
    found = nodes(dataclasses.replace(network, parts=network.parts * 2))
    assert [node["layer"] for node in found if node["where"] == "machine"] == [*range(8)]


def test_layers_without_sources_follow_each_other(network: Network) -> None:
    sources: tuple[Any, ...] = (None, [7], "x", [[]])

    def bare(part: object) -> object:
        if not isinstance(part, TModel):
            return part
        return dataclasses.replace(part, layers=tuple({"name": "l", "kind": "mat_mul", "macs": 1, "after": after}
                                                      for after in sources))

    found = nodes(dataclasses.replace(network, parts=tuple(map(bare, network.parts))))  # type: ignore[arg-type]
    assert [node["after"] for node in found[1:5]] == [[0], [1], [2], [3]]


@pytest.mark.parametrize("row, expected", [
    ({"macs": 9, "input": [3, 8, 8], "output": [20, 8, 8], "group": 1}, {"rows": 3, "columns": 10, "group": 1}),
    ({"macs": 9, "input": [32, 8, 8], "output": [16, 8, 8], "group": 1}, {"rows": 16, "columns": 16, "group": 1}),
    ({"macs": 9, "input": [32, 8, 8], "output": [32, 8, 8], "group": 32}, {"rows": 1, "columns": 1, "group": 32}),
    ({"macs": 0, "input": [32, 8, 8], "output": [32, 8, 8], "group": 1}, None),
    ({"macs": 9, "input": [32, 8, 8], "output": "much"}, None)])
def test_idle_lanes_show(row: dict[str, Any], expected: dict[str, float] | None) -> None:
    assert lanes_used(row, 16) == expected


@pytest.mark.parametrize(("value", "kept"), [([-0.5, 1], True), ([], False), ([1], False), ([1, 2, 3], False),
                                             ([1, "2"], False), ([1, float("nan")], False), ({"1": 1, "2": 2}, False)])
def test_a_pair_is_a_list_of_two_numbers(value: Any, kept: bool) -> None:
    found = _numbers({"range": value, "scales": {"output": value}})
    assert (found["low"], found["high"], found["scale"]) == ((*value, value) if kept else (None, None, None))


# -- names -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*HOSTILE, "\ud800 half a letter"])
def test_a_shown_name_prints_and_is_short(name: str) -> None:
    text = shown(name)
    assert text.isprintable() and len(text) <= LONGEST
    assert not set(in_html(name)) & set("<>\"'")
    assert not set(script_json({name: [name]})) & set("<>&\u2028") and script_json(name).isascii()
    assert json.loads(script_json({name: [name]})) == {name: [name]}


def test_96_characters_of_a_name_are_shown_and_the_ends_of_a_longer_one() -> None:
    name = "".join(chr(0x4e00 + number) for number in range(97))
    assert shown(name[:96]) == name[:96]
    assert shown(name) == name[:48] + "…" + name[50:]


def test_hostile_names_are_data(network: Network, hostile: Network, made: Made, tmp_path: Path) -> None:
    content = made(hostile, tmp_path).read_text()
    page, own = Page(content), Page(made(network, tmp_path).read_text())
    assert [(tag, sorted(given)) for tag, given in page.tags] == [(tag, sorted(given)) for tag, given in own.tags]
    assert page.data["layers"][0]["name"] == HOSTILE[0]
    assert len(content) < len(plot_library()) + 300_000


# -- the commands ------------------------------------------------------------------------------------------------------
def test_compile_html_measures_every_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, samples = small_network(tmp_path)
    np.savez(tmp_path / "x.npz", x=samples)
    arguments = ["compile", str(path), "-a", "arty", "-o", str(tmp_path), "--calibrate", str(tmp_path / "x.npz"),
                 "--host-fallback", "--html", str(tmp_path / "a.html")]
    assert exit_code(arguments) == 0
    data = Page((tmp_path / "a.html").read_text()).data
    assert all(layer["numbers"]["measured"] and layer["numbers"]["snr"] > 50 for layer in data["layers"])
    assert data["machine"]["name"] == "arty" and data["machine"]["resources"]["part"] == "XC7A35T"
    assert exit_code(["report", str(tmp_path / "net.tmodel"), "-o", str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()
    assert "b.html" in capsys.readouterr().out


@pytest.mark.parametrize("wrong, said", [
    (["--part", "XC7A36T"], "did you mean XC7A35T"), (["-o", "."], "a directory"),
    (["--set", "array_size=3"], "array_size")])
def test_wrong_arguments_of_report(network: Network, wrong: list[str], said: str, tmp_path: Path,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert exit_code(["report", str(network.folder / f"{network.name}.tmodel"), "-o", str(page), *wrong]) == 1
    error = capsys.readouterr().err
    assert said in error and "allowed:" in error and "way out:" in error
    assert not page.exists()


def test_library_is_the_part_that_draws_charts_with_axes() -> None:
    library = plot_library()
    assert "plotly.js (cartesian - minified) v4.1.1" in library[:100] and len(library) < 1_600_000
    assert "</script" not in library.lower() and "<!--" not in library
    assert "MIT License" in (LIBRARY.parent / "LICENSE-plotly.js").read_text()
