"""What `weft resources` predicts: block RAM and DSP blocks exactly, the rest within the error that it states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.hw.contract.arch import SEPARATE, SHARED, Arch
from weft.hw.flow import resources
from weft.hw.flow.memories import Ram, block_rams
from weft.hw.flow.parts import PARTS
from weft.tb.unit.project.conftest import Weft

ROOT = Path(__file__).parents[3]
BASELINES = sorted((ROOT / "hw" / "flow" / "baseline").glob("synth_*.json"))
EXACT = ("dsp", "bram36", "bram18")
MOST_PERCENT = 5


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
    (Ram("local", 4, 8, 32), "ecp5", {}), (Ram("simd", 0, 64, 16), "xc7", {}),
])
def test_block_rams_by_hand(ram: Ram, family: str, blocks: dict[str, int]) -> None:
    assert block_rams(ram, family) == blocks


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
    assert set(found["blocks"]) == set(resources.BLOCKS)
    assert found["of_part"]["dsp"] == [32 * 33 + 2, resources.SHELL["dsp"], PARTS["XC7A35T"].dsp]
    assert json.loads(weft("resources", "-a", "tiny", "--part", "XC7A100T", "--json").out)["fits"]
    assert "too many" in weft("resources", "-a", "pynq", "--part", "LFE5U-25F").out
    assert "XC7Z020" in weft("resources", "-a", "pynq").out, "the board's part"
    assert "UltraRAM blocks: 32 of 96" in weft("resources", "-a", "zcu104").out, "4 banks of 4096 x 512 bits"
    assert "UltraRAM" not in weft("resources", "-a", "ultra96").out, "XCZU3EG has none"


@pytest.mark.parametrize(("arguments", "text"), [
    (("-a", "arty", "--part", "XC7A36T"), "did you mean XC7A35T?"), (("-a", "tiny"), "this machine has no board"),
    (("-a", "tiny", "--part", ""), "--part: found ; allowed: XC7A35T"),
])
def test_a_part_that_is_not_known_is_refused(weft: Weft, arguments: tuple[str, ...], text: str) -> None:
    answer = weft("resources", *arguments)
    assert (answer.code, answer.out) == (1, "") and text in " ".join(answer.err.split())
