# SPDX-License-Identifier: Apache-2.0
"""What `weft resources` predicts: block RAM and DSP blocks exactly, the rest within the error that it states."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

from weft.boards import BOARDS
from weft.cli.resources import around
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SEPARATE, SHARED
from weft.hw.flow import resources
from weft.hw.flow.memories import Ram, block_rams, rams, ultra_rams
from weft.hw.flow.parts import PARTS
from weft.hw.flow.synthesis import BlockText, block_texts, digest_of_block
from weft.hw.memory.accumulators import word_width
from weft.hw.memory.banks import Interleave
from weft.support.errors import WeftError
from weft.tb.unit.project.conftest import Weft

ROOT = Path(__file__).parents[3]
BASELINES = sorted((ROOT / "hw" / "flow" / "baseline").glob("synth_*.json"))
EXACT = ("dsp", "bram36", "bram18")
MOST_PERCENT = 5


def load_script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert specification is not None and specification.loader is not None
    found = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(found)
    return found


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.stem)
def test_dsp_blocks_and_block_ram_are_those_of_synthesis(path: Path) -> None:
    arch = Arch.load(path.stem.removeprefix("synth_"))
    for family, report in json.loads(path.read_text()).items():
        predicted = resources.predict(arch, family)
        for block, counts in report["blocks"].items():
            found = predicted.get(block, {})
            assert [found.get(column, 0) for column in EXACT] == [counts[column] for column in EXACT], (family, block)


@pytest.mark.parametrize(("ram", "family", "blocks"), [
    (Ram("local", 4, 2048, 128), "xc7", {"bram18": 60}), (Ram("local", 4, 2048, 192), "xc7", {"bram36": 44}),
    (Ram("accumulators", 2, 1024, 384), "xc7", {"bram36": 22}), (Ram("local", 4, 2048, 128), "ecp5", {"bram18": 60}),
    (Ram("local", 2, 512, 36), "xc7", {"bram18": 2}), (Ram("local", 4, 8, 32), "xc7", {}),
    (Ram("local", 4, 8, 32), "ecp5", {}), (Ram("local", 4, 128, 16), "ecp5", {"bram18": 4}),
    (Ram("simd", 0, 64, 16), "xc7", {}),
])
def test_block_rams_by_hand(ram: Ram, family: str, blocks: dict[str, int]) -> None:
    assert block_rams(ram, family) == blocks


@pytest.mark.parametrize(("data_type", "family", "blocks"), [
    ("FP16BP8", "xc7", {"array": 16, "simd": 4, "decoder": 2}),
    ("FP18BP10", "ecp5", {"array": 16, "simd": 4, "decoder": 2}),
    ("FP20BP10", "ecp5", {"array": 64, "simd": 16, "decoder": 2}),
    ("FP25BP10", "xc7", {"array": 32, "simd": 8, "decoder": 2}),
    ("FP26BP10", "xc7", {"array": 64, "simd": 16, "decoder": 2}),
    ("FP18BP10", "xc7", {"array": 16, "simd": 4, "decoder": 2}),
    ("FP19BP10", "xc7", {"array": 32, "simd": 8, "decoder": 2}),
    ("FP4BP2", "xc7", {"array": 0, "simd": 0, "decoder": 2}),
    ("INT8", "xc7", {"array": 16, "simd": 4, "decoder": 2, "input_rescaler": 4, "move_out": 4}),
    ("INT8", "ecp5", {"array": 16, "simd": 4, "decoder": 2, "input_rescaler": 4, "move_out": 8}),
])
def test_dsp_blocks_by_hand(data_type: str, family: str, blocks: dict[str, int]) -> None:
    """Of 4 lanes. A move of bytes out multiplies 25 x 18 bits, an ECP5's blocks have 18 x 18."""
    arch = Arch.load("arty").replace(array_size=4, data_type=data_type)
    assert resources.dsp_blocks(arch, family) == blocks
    assert resources.dsp_blocks(arch.replace(decoder_multipliers=0), family) == {**blocks, "decoder": 0}


def test_what_no_machine_had_is_said_not_guessed(monkeypatch: pytest.MonkeyPatch, weft: Weft) -> None:
    arch, model = Arch.load("ecpix5"), copy.deepcopy(resources.model())
    assert arch.register_slices
    for column in resources.FITTED:
        model["families"]["ecp5"][column]["simd"][resources.BLOCKS["simd"].index("slices")] = None
    assert "simd: slices" in resources.unknown(arch, "ecp5", model["families"])
    assert "simd: slices" not in resources.unknown(arch.replace(register_slices=0), "ecp5", model["families"])
    model["numbers"]["xc7"] = ["once"]
    monkeypatch.setattr(resources, "model", lambda: model)
    assert "simd: slices" in resources.fits(arch, PARTS["LFE5U-85F"])["unknown"]
    with pytest.raises(WeftError, match=r"resources on xc7: found data_type INT8.*allowed: .*once"):
        resources.fits(arch.replace(data_type="INT8"), PARTS["XC7A35T"])


def test_a_fit_finds_the_numbers_that_made_the_counts() -> None:
    """Blocks that are sums of their terms, on the script's own machines; left out one by one as well."""
    script = load_script("fit_resources")
    machines = {name: arch for name, arch in script.FITTED.items() if arch.array_size < 6}
    made = {column: {kind: np.linspace(1, 3, len(terms)).tolist() for kind, terms in resources.BLOCKS.items()}
            for column in resources.FITTED}
    counts = {name: {kind: {**dict.fromkeys(resources.COLUMNS, 0), **{
        column: round(1000 * resources.of_block(arch, kind, made[column][kind])) for column in resources.FITTED}}
        for kind in resources.BLOCKS} for name, arch in machines.items()}
    found = script.fit(machines, counts)
    for name, arch in machines.items():
        error = script.errors(arch, "xc7", counts[name], {"xc7": found})
        assert all(abs(error[column]) < 1 for column in resources.FITTED), (name, error)
    assert found["lut"]["simd"][resources.BLOCKS["simd"].index("tables")] is not None
    without = {name: arch for name, arch in machines.items() if not arch.lut_count}
    less = script.fit(without, counts)
    assert less["lut"]["simd"][resources.BLOCKS["simd"].index("tables")] is None
    assert script.errors(machines["lanes4_lut"], "xc7", counts["lanes4_lut"], {"xc7": less}) is None


def test_each_content_is_counted_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("fit_resources")
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(script, "commit", lambda: "1234567")
    monkeypatch.setattr(script, "block_texts", lambda arch: {
        "csr": "the same everywhere", "dram0_read": f"core.dram0_read, {arch.array_size} lanes",
        "dram1_read": f"core.dram1_read, {arch.array_size} lanes", "unheard_of": "not of the model"})

    def synthesize(blocks: dict, family: str, folder: Path) -> dict[str, dict[str, int]]:
        asked.extend((kind, block.text) for kind, block in blocks.items())
        return {kind: dict.fromkeys(resources.COLUMNS, len(block.text)) for kind, block in blocks.items()}

    monkeypatch.setattr(script, "synthesize_blocks", synthesize)
    machines, file = {name: script.FITTED[name] for name in ("lanes2", "lanes4")}, tmp_path / "blocks.jsonl"
    for _ in range(2):
        script.count(script.Counted(file), machines, "xc7", Console(quiet=True))
    assert asked == [("csr", "the same everywhere"), ("dram_read", "core.dram_read, 2 lanes"),
                     ("dram_read", "core.dram_read, 4 lanes")]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["machine"], row["block"]) for row in rows] == [
        (machine, block) for machine in machines for block in ("csr", "dram_read")]
    monkeypatch.setattr(resources, "blocks_of", lambda arch: {"csr": 1, "dram_read": 2, "sampler": 0})
    counted = script.Counted(file)
    assert counted.of("lanes4", machines["lanes4"], "xc7")["dram_read"]["lut"] == len("core.dram_read, 4 lanes")
    assert counted.of("lanes4", machines["lanes4"].replace(local_depth=64), "xc7") is None, "another machine by now"
    assert counted.of("lanes4", machines["lanes4"], "ecp5") is None


@pytest.mark.wide
def test_a_change_elsewhere_leaves_a_block_its_digest() -> None:
    """Local memory comes before the fetcher in the machine, and passes fewer ports' names with one bank."""
    machines = [Arch.load("tiny").replace(local_banks=banks) for banks in (1, 2)]
    texts = [block_texts(arch)["fetch"] for arch in machines]
    assert texts[0] != texts[1], "Amaranth numbers through the whole machine"
    digests = {digest_of_block(BlockText(text, arch.number.width), "xc7")
               for text, arch in zip(texts, machines, strict=True)}
    assert len(digests) == 1
    other = digest_of_block(BlockText(texts[0].replace("wire width 1 ", "wire width 2 ", 1), 16), "xc7")
    assert other not in digests


def test_the_stated_errors_are_small() -> None:
    for family, machines in resources.model()["error"].items():
        for name, error in machines.items():
            assert all(abs(error[column]) <= MOST_PERCENT for column in resources.FITTED), (family, name, error)
            assert not any(error[column] for column in EXACT), (family, name, error)


def test_a_term_for_each_number() -> None:
    for columns in resources.model()["families"].values():
        for blocks in columns.values():
            assert {name: len(numbers) for name, numbers in blocks.items()} == {
                name: len(terms) for name, terms in resources.BLOCKS.items()}


def test_a_larger_machine_takes_more_and_a_shared_port_less() -> None:
    def luts(arch: Arch) -> int:
        return sum(block["lut"] for block in resources.predict(arch, "xc7").values())

    separate = Arch.load("arty").replace(dram_ports=SEPARATE)
    assert luts(separate.replace(dram_ports=SHARED)) < luts(separate) < luts(separate.replace(array_size=12))


def test_the_command_says_whether_a_machine_fits(weft: Weft) -> None:
    found = json.loads(weft("resources", "-a", "zcu104", "--part", "xc7a35t", "--json").out)
    assert (found["part"], found["fits"]) == ("XC7A35T", False) and {"lut", "dsp", "bram"} <= set(found["short"])
    assert set(found["blocks"]) == set(resources.BLOCKS) - set(resources.ONLY_OF_CORES)
    assert found["of_part"]["dsp"] == [32 * 33 + 2, resources.SHELL["dsp"], PARTS["XC7A35T"].dsp]
    assert json.loads(weft("resources", "-a", "tiny", "--part", "XC7A100T", "--json").out)["fits"]
    assert "too many" in weft("resources", "-a", "pynq", "--part", "LFE5U-25F").out
    assert "XC7Z020" in weft("resources", "-a", "pynq").out, "the board's part"
    assert "UltraRAM blocks: 32 of 96" in weft("resources", "-a", "zcu104").out, "4 banks of 4096 x 512 bits"
    assert "UltraRAM" not in weft("resources", "-a", "ultra96").out, "XCZU3EG has none"


def test_a_board_takes_what_its_own_shell_takes() -> None:
    shells = {name: around(BOARDS[name])["lut"] for name in ("arty_a7_35", "arty_a7_100", "ulx3s", "ecpix5", "pynq_z1")}
    assert shells == {"arty_a7_35": 5_100, "arty_a7_100": 8_200, "ulx3s": 4_000, "ecpix5": 7_000,
                      "pynq_z1": resources.SHELL["lut"]}
    assert around(BOARDS["ecpix5"], Arch.load("ecpix5_int8"))["lut"] == 12_400, "with Ethernet"
    tang = around(BOARDS["tang_nano_20k"])
    assert (tang["lut"], tang["bram"]) == (2_000, 4 + 16 + 16), "its memory: 8, 32 and 32 KiB"
    nexus = around(BOARDS["crosslink_nx_evn"])
    assert (nexus["lut"], nexus["bram"]) == (2_000, 32), "64 KiB of program; the rest lies in larger RAM"
    arch, part = Arch.load("arty"), PARTS["XC7A35T"]
    assert resources.fits(arch, part)["short"] == ["lut"]
    found = resources.fits(arch, part, around=around(BOARDS["arty_a7_35"]))
    assert found["fits"] and found["of_part"]["lut"][1:] == [5_100, 20_800]


@pytest.mark.parametrize(("arguments", "text"), [
    (("-a", "arty", "--part", "XC7A36T"), "did you mean XC7A35T?"), (("-a", "tiny"), "this machine has no board"),
    (("-a", "tiny", "--part", ""), "--part: found ; allowed: XC7A35T"),
    (("-a", "tang_nano_20k"), "numbers of machines that were counted: none yet"),
])
def test_a_part_that_is_not_known_is_refused(weft: Weft, arguments: tuple[str, ...], text: str) -> None:
    answer = weft("resources", *arguments)
    assert (answer.code, answer.out) == (1, "") and text in " ".join(answer.err.split())


def test_cores_are_as_many_of_one_and_what_they_share() -> None:
    """DSP blocks, block RAM and logic; and an arbiter for each port, whose size grows with the cores behind it."""
    arch = Arch.load("arty").replace(cores=4, memory_ports=2)
    found, one = resources.predict(arch, "xc7"), resources.predict(arch.replace(cores=1, memory_ports=1), "xc7")
    assert set(found) - set(one) == set(resources.SHARED)
    for kind, counts in one.items():
        assert found[kind]["ff"] == pytest.approx(4 * counts["ff"], abs=2)
        assert all(found[kind].get(column) == 4 * counts[column] for column in EXACT if column in counts)
    assert not resources.unknown(arch, "xc7")
    by_ports = [resources.predict(arch.replace(memory_ports=ports), "xc7")["port_arbiter"]["lut"] / ports
                for ports in (4, 2, 1)]
    assert 0 < by_ports[0] < by_ports[1] < by_ports[2]


@pytest.mark.parametrize(("cores", "ports", "counters"), [(1, 1, 0), (2, 1, 0), (2, 2, 4), (4, 3, 16)])
def test_blocks_are_as_many_as_the_machine_has(cores: int, ports: int, counters: int) -> None:
    arch = Arch.load("tiny").replace(dram_ports=SHARED, cores=cores, memory_ports=ports, sync_counters=counters)
    found = resources.blocks_of(arch)
    assert found["port_arbiter"] == (ports if cores > 1 else 0)
    assert found["page_router"] == found["system_registers"] == (cores > 1)
    assert found["sync"] == (cores if counters else 0) and found["array"] == found["dram_read"] == cores
    assert resources.blocks_of(arch.replace(sampler=0))["sampler"] == 0 < found["sampler"] == cores


@pytest.mark.parametrize("column", ["ff", "dsp"])
def test_a_machine_may_take_the_last_of_a_part(column: str) -> None:
    arch, part = Arch.load("pynq"), PARTS["XC7Z020"]
    machine, board, _ = resources.fits(arch, part)["of_part"][column]
    exact = dataclasses.replace(part, **{column: machine + board})
    assert column not in resources.fits(arch, exact)["short"]
    assert column in resources.fits(arch, dataclasses.replace(part, **{column: machine + board - 1}))["short"]


def test_local_memory_may_take_the_last_block_of_ultra_ram() -> None:
    arch = Arch.load("zcu104")
    part = next(part for part in PARTS.values() if part.uram and ultra_rams(arch, part))
    number = ultra_rams(arch, part)
    assert [ultra_rams(arch, dataclasses.replace(part, uram=blocks)) for blocks in (number - 1, number)] == [0, number]


@pytest.mark.parametrize("name", ["tiny", "arty_int8", "pynq_lut"])
def test_memories_are_as_wide_as_the_blocks_that_have_them(name: str) -> None:
    arch = Arch.load(name)
    found = {ram.block: ram for ram in rams(arch)}
    banks = Interleave(arch.accumulator_banks, arch.accumulator_depth)
    assert found["accumulators"] == Ram("accumulators", banks.count, banks.rows, word_width(arch))
    banks = Interleave(arch.local_banks, arch.local_depth)
    assert found["local"] == Ram("local", banks.count, banks.rows, 8 * arch.vector_bytes)


@pytest.mark.parametrize(("changes", "term", "value"), [
    ({"cores": 3, "join_cycles": 64}, "addresses compared", 3 * 32),
    ({"cores": 4, "memory_ports": 2, "join_cycles": 64}, "addresses compared", 32),
    ({"cores": 3}, "addresses compared", 0),
    ({"array_size": 2}, "gearbox", 32),  # two vectors of 4 bytes in a beat
    ({"array_size": 3}, "gearbox", 6 * 16 * 3),  # units of 2 bytes: four in a beat, three in a vector
    ({"array_size": 4}, "gearbox", 0)])
def test_sizes_that_a_block_depends_on_by_hand(changes: dict[str, int], term: str, value: float) -> None:
    arch = Arch.load("tiny").replace(dram_ports=SHARED, axi_data_width=64, stream_width=64, axi_address_width=32)
    assert resources.TERMS[term](arch.replace(**changes)) == value
