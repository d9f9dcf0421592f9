# SPDX-License-Identifier: Apache-2.0
"""The search for a machine: what it rules out cannot win, and its front is that of looking at everything."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.cli.main import exit_code
from weft.compiler.lir import MatMul
from weft.compiler.pipeline import compile_model, run_steps
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.cycles.replay import estimate
from weft.cycles.system import cycles_an_image
from weft.explore import measure
from weft.explore import space as defaults
from weft.explore.measure import Network, Refused, _least_vectors, digest_of
from weft.explore.results import Results
from weft.explore.search import BOUNDED, ESTIMATED, FIT, REFUSED, Found, Outcome, Search
from weft.explore.space import FREE_OF_CONSTANTS, FREE_OF_PROGRAM, Point, default_axes, points, without
from weft.explore.workers import dask
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram
from weft.hw.contract.key_values import SHARED
from weft.hw.flow import resources
from weft.hw.flow.parts import PARTS
from weft.runtime.programs import image_a_core
from weft.support.errors import WeftError
from weft.support.processes import Here
from weft.tb.compile.run_model import ModelMaker
from weft.tmodel.network import Network as Compiled

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "models" / "digits" / "digits.onnx"
BASE = Arch.load("arty").replace(sampler=0)
AXES: dict[str, tuple[int | str, ...]] = {
    "array_size": (4, 8, 12), "local_depth": (512, 2048), "local_banks": (1, 4), "accumulator_banks": (1, 2)}
LATENCY = 50
MEMORY = IdealDram(LATENCY, LATENCY)


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(DIGITS, digest_of(DIGITS), host_fallback=True)


@pytest.fixture(scope="module")
def space() -> list[Point]:
    return points(BASE, AXES, PARTS["XC7Z020"])


def search(network: Network, space: list[Point], executor: Executor | None = None, workers: int = 1,
           results: Results | None = None) -> Outcome:
    return Search([network], space, executor or Here(), workers, results or Results(), MEMORY).run()


@pytest.fixture(scope="module")
def outcome(network: Network, space: list[Point]) -> Outcome:
    return search(network, space)


def cycles(network: Network, arch: Arch) -> int:
    made = measure.programs(network, arch)
    assert not isinstance(made, Refused)
    found = measure.cycles(made, arch, MEMORY)
    assert found is not None
    return found


@pytest.mark.parametrize("keys", [FREE_OF_CONSTANTS, FREE_OF_PROGRAM])
def test_what_machines_share_does_not_depend_on_where_they_differ(network: Network, keys: tuple[str, ...]) -> None:
    """Compiled with the keys as they are, and as the machine that stands for all of them has them."""
    from weft.compiler.backend.encode import MachineCode
    from weft.compiler.pipeline import run_on, run_parts
    from weft.compiler.quantize.consts import Consts

    arch = BASE.replace(local_depth=1024, accumulator_depth=256, axi_data_width=256, dram_ports=SHARED, deep_queues=1)
    assert without(arch, keys) != arch
    for machine in (arch, without(arch, keys)):
        (products,) = run_parts(network.request(), machine, last="consts")[1]
        if machine is arch:
            vectors, code = products[Consts].vectors, run_on(products, "consts")[MachineCode].content
        else:
            assert (products[Consts].vectors == vectors).all()
            assert measure.programs(network, arch) == [code]


def test_the_bound_is_below_the_cycles_and_near_them(network: Network, space: list[Point]) -> None:
    for point in space[::10]:
        least, found = measure.least_cycles(network, point.arch), cycles(network, point.arch)
        assert isinstance(least, int) and least <= found
        assert point.arch.array_size > 4 or least > found / 2, "a bound of nothing rules out nothing"


def test_the_bound_counts_the_vectors_of_a_product_of_two_tensors(tmp_path: Path) -> None:
    """With one weight tile it is what the program's MatMuls take, with more of them nearly that."""
    for rows, columns, nearly in ((5, 3, 1.0), (20, 11, 0.9)):
        maker = ModelMaker((1, 1, rows, columns))
        maker.node("MatMul", "x", maker.node("Transpose", "x", perm=(0, 1, 3, 2)))
        request = Request(maker.save(tmp_path / "net.onnx"), {"x": np.ones(maker.shape, np.float32)})
        products = run_steps(request, BASE.replace(array_size=8))
        taken = sum(each.size * each.rows for each in products[Schedule].operations if isinstance(each, MatMul))
        assert nearly * taken <= _least_vectors(products) <= taken


def test_results_are_of_how_the_network_is_compiled(tmp_path: Path) -> None:
    """The same file at another size, ending elsewhere, or with the host's help has cycles of its own."""
    file = ModelMaker((1, 4, 6, 6))
    file.node("Softmax", file.node("Relu", file.conv("x", 4, 4, (3, 3))), axis=1)
    model = file.model()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    del model.graph.value_info[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "open.onnx"
    onnx.save(model, path)
    content, small = digest_of(path), (("x", (1, 4, 6, 6)),)
    others = [Network(path, content, shapes=small), Network(path, content, shapes=(("x", (1, 4, 20, 6)),)),
              Network(path, content, host_fallback=True, shapes=small), Network(path, content, outputs=("relu",)),
              Network(path, content, fixed=(("x", (1.0,)),))]
    assert len({network.key for network in others}) == len(others)
    results, machines = Results(tmp_path / "results"), points(BASE, {"array_size": (4,)}, PARTS["XC7Z020"])
    helped = [Network(path, content, host_fallback=True, shapes=(("x", (1, 4, height, 6)),)) for height in (6, 20)]
    taken = [search(network, machines, results=results).front[0].cycles for network in helped]
    assert taken == [cycles(network, machines[0].arch) for network in helped] and taken[0] < taken[1]


def test_the_front_is_that_of_looking_at_everything(network: Network, space: list[Point], outcome: Outcome) -> None:
    fitting = [point for point in space if not point.short]
    every = {point.index: cycles(network, point.arch) for point in fitting}
    front = [point for point in fitting if not any(
        other.share <= point.share and every[other.index] <= every[point.index]
        and (other.share, every[other.index], other.rank) < (point.share, every[point.index], point.rank)
        for other in fitting)]
    assert [found.point.index for found in outcome.front] == [
        point.index for point in sorted(front, key=lambda point: point.share)]
    assert [found.cycles for found in outcome.front] == [every[found.point.index] for found in outcome.front]
    assert sum(outcome.counts.values()) == len(space)
    assert outcome.counts[FIT] == len(space) - len(fitting) and outcome.counts[BOUNDED] and outcome.counts[ESTIMATED]


@pytest.mark.parametrize(("measured", "beaten"), [
    ([(10, 100), (10, 80)], [None, 80, 80]), ([(10, 80), (10, 100)], [None, 80, 80]),
    ([(10, 80), (20, 90)], [None, 80, 80]), ([(20, 70), (10, 80)], [None, 80, 70]),
    ([(20, 90), (10, 80)], [None, 80, 80])])
def test_the_machine_to_beat_is_the_fastest_of_those_that_cost_no_more(measured: list[tuple[int, int]],
                                                                       beaten: list[int | None],
                                                                       space: list[Point]) -> None:
    """Of shares below 10, of 10 and of 20, whoever was measured first."""
    own = Search([], [], Here(), 1, Results(), MEMORY)
    for share, taken in measured:
        own._enter(Found(replace(space[0], share=share), (taken,)))
    assert [own._to_beat(replace(space[0], share=share)) for share in (9, 10, 20)] == beaten


def test_machines_that_cannot_run_the_network_are_counted(network: Network, space: list[Point],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "least_cycles", lambda network, arch: Refused("no room"))
    found, fitting = search(network, space), [point for point in space if not point.short]
    assert found.counts == {FIT: len(space) - len(fitting), REFUSED: len(fitting), BOUNDED: 0, ESTIMATED: 0}
    assert found.refusals == {"no room": len(fitting)} and found.front == ()


def test_workers_do_not_change_the_front(network: Network, space: list[Point], outcome: Outcome) -> None:
    with ThreadPoolExecutor(3) as threads:
        assert search(network, space, threads, 3).front == outcome.front


def test_a_fleet_takes_the_cycles_of_all(network: Network, space: list[Point], outcome: Outcome) -> None:
    again = Search([network, network], space, Here(), 1, Results(), MEMORY).run()
    assert [found.each for found in again.front] == [found.each * 2 for found in outcome.front]


def test_a_search_goes_on_from_its_results(network: Network, space: list[Point], outcome: Outcome, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    assert search(network, space, results=Results(path)).front == outcome.front
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:len(lines) // 2]) + lines[-1][:30])  # killed while it wrote
    half = Results(path)
    assert half.found_before == len(lines) // 2
    assert search(network, space, results=half).front == outcome.front

    def never(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "programs", never)
    monkeypatch.setattr(measure, "least_cycles", never)
    assert search(network, space, results=Results(path)).front == outcome.front


def test_types_whose_resources_are_not_known_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    part = PARTS["XC7A35T"]
    for numbers, types in ((["once"], ("FP16BP8", "FP8BP4")), (["int8", "once"], ("FP16BP8", "FP8BP4", "INT8")),
                           (["int8"], ("INT8",))):
        monkeypatch.setattr(resources, "model", lambda numbers=numbers: {"numbers": {"xc7": numbers}})
        assert default_axes(BASE, part)["data_type"] == types
    monkeypatch.setattr(resources, "model", lambda: {"numbers": {"xc7": []}})
    with pytest.raises(WeftError, match="resources on xc7: found data_type FP16BP8"):
        default_axes(BASE, part)


# -- the command -------------------------------------------------------------------------------------------------------
QUICK = ("--host-fallback", "--jobs", "1", "--axis", "array_size=4,8", "--axis", "local_depth=1024",
         "--axis", "accumulator_depth=512", "--axis", "axi_data_width=64", "--axis", "data_type=FP16BP8",
         "--axis", "deep_queues=0")


def test_the_command_writes_a_machine_that_loads(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / name for name in ("best.tarch", "results.jsonl", "front.svg")}
    where = ("--results", str(files["results.jsonl"]), "--output", str(files["best.tarch"]))
    assert exit_code(["explore", str(DIGITS), "--part", "xc7z020", *QUICK, *where, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert sum(found["machines"].values()) == 16 and found["part"] == "XC7Z020"
    assert found["dram_latency_cycles"] == EXPECTED.read_latency
    assert Arch.load(files["best.tarch"]).to_dict() == found["front"][-1]["arch"]
    for before, after in itertools.pairwise(found["front"]):
        assert before["cycles"] > after["cycles"] and before["share"] < after["share"]
    monkeypatch.setenv("COLUMNS", "60")
    picture = ("--plot", str(files["front.svg"]))
    assert exit_code(["explore", str(DIGITS), "--board", "pynq_z1", *QUICK, *where, *picture]) == 0
    text = capfd.readouterr().out
    assert max(map(len, text.splitlines()[:-1])) <= 60, "but for the path at the end"
    assert "machines looked at" in " ".join(text.split()) and "ms at 100 MHz" in text
    assert files["front.svg"].stat().st_size


def test_cores_are_an_axis_and_take_what_a_compiled_network_takes(network: Network, tmp_path: Path) -> None:
    """Of an image, on average. A vector takes as long on a wide bus that two cores share as on a narrow one of its
    own, but then they wait for each other."""
    axes: dict[str, tuple[int | str, ...]] = {"cores": (1, 3), "memory_ports": (1, 3), "axi_data_width": (64, 128)}
    space = points(BASE, axes, PARTS["XCZU7EV"])
    found = {(arch.cores, arch.memory_ports, arch.axi_data_width): arch for arch in (point.arch for point in space)}
    assert set(found) == {(1, 1, 64), (1, 1, 128), *itertools.product((3,), (1, 3), (64, 128))}
    for arch in found.values():
        report = compile_model(DIGITS, arch, tmp_path, host_fallback=True)
        program = Compiled.load(report.model_path).machines[0].program
        expected = (estimate(program, arch, MEMORY).cycles if arch.cores == 1
                    else cycles_an_image(image_a_core(program, arch), arch, MEMORY))
        assert cycles(network, arch) == expected
        least = measure.least_cycles(network, arch)
        alone = measure.least_cycles(network, arch.replace(cores=1, memory_ports=1))
        assert isinstance(least, int) and isinstance(alone, int)
        assert least == pytest.approx(alone / arch.cores, rel=0.05), "the share of a port decides how inputs are packed"
        assert least <= expected
    outcome = search(network, space)
    assert {point.arch.cores for point in (each.point for each in outcome.front)} == {1, 3}


def test_cores_behind_a_board_s_memory_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["explore", str(DIGITS), "--board", "ecpix5", "--axis", "cores=1,2"]
    assert exit_code(arguments) == 1
    assert "machines of 2 cores; allowed: one core" in " ".join(capfd.readouterr().err.split())


def test_a_board_with_a_known_memory_is_searched_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One chip of 16 bits for both windows and the program; with --latency ideal memories as ever."""
    found = []
    for options in ((), ("--latency", "30")):
        assert exit_code(["explore", str(DIGITS), "--board", "ulx3s", *QUICK, *options, "--results",
                          str(tmp_path / "results.jsonl"), "--json"]) == 0
        found.append(json.loads(capfd.readouterr().out))
    assert [each["dram_latency_cycles"] for each in found] == [None, 30]
    board, ideal = (each["front"][-1]["cycles"] for each in found)
    assert board > 1.5 * ideal


@pytest.mark.parametrize(("arguments", "text"), [
    ((), "--part and --board: found neither"), (("--part", "xc7a36t"), "did you mean XC7A35T?"),
    (("--part", "xc7a35t", "--board", "arty_a7_35"), "found both"), (("--board", "moon"), "board: found moon"),
    (("--part", "xc7a35t", "--axis", "colour=1"), "--axis: found colour=1"),
    (("--part", "xc7a35t", "--axis", "array_size=4,banana"), "--axis: found array_size=banana; allowed: integers"),
    (("--part", "xc7a35t", "--axis", "data_type=FP16BP8", "--axis", "local_banks=2,3"), "local_banks: found 3"),
    (("--part", "xc7a35t", "--axis", "array_size=200", "--axis", "data_type=FP16BP8"),
     "first of all: the smallest takes"),
    (("--part", "GW2AR-18"), "resources on gowin: found data_type"),
    (("--part", "xc7a35t", "--axis", "array_size=4", "--axis", "data_type=FP4BP2", "--least-snr", "90"),
     "--least-snr: found FP4BP2"),
])
def test_what_cannot_be_searched_is_refused(arguments: tuple[str, ...], text: str, tmp_path: Path,
                                            capfd: pytest.CaptureFixture[str]) -> None:
    code = exit_code(["explore", str(DIGITS), "--host-fallback", "--jobs", "1", "--results",
                      str(tmp_path / "results.jsonl"), *arguments])
    captured = capfd.readouterr()
    assert (code, captured.out) == (1, "") and text in " ".join(captured.err.split())


def test_a_results_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk\n")
    assert exit_code(["explore", str(DIGITS), "--part", "xc7a35t", "--results", str(path)]) == 1
    assert path.read_text() == "milk\n"


def test_workers_end_with_a_search_that_is_killed() -> None:
    text = ("import os, time\nfrom weft.support.processes import processes\nif __name__ == '__main__':\n"
            "    with processes(2) as pool:\n        print(pool.submit(os.getpid).result(), flush=True)\n"
            "        time.sleep(600)\n")
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        worker = int(killed.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        killed.kill()
        for _ in range(600):
            if not Path(f"/proc/{worker}").exists():
                return
            time.sleep(0.1)
    raise AssertionError("it is still there")


def test_default_values_make_machines_whose_memories_fill_their_blocks() -> None:
    for key, values in defaults.AXES.items():
        for value in values:
            assert getattr(Arch.load("pynq").replace(**{key: value}), key) == value
            assert not key.endswith("_depth") or int(value).bit_count() == 1



# -- other workers, and the hardware -----------------------------------------------------------------------------------
@pytest.mark.wide
@pytest.mark.slow
def test_two_dask_workers_find_the_same_front(network: Network, space: list[Point], outcome: Outcome) -> None:
    pytest.importorskip("distributed", reason="needs the extra explore: pip install -e '.[explore]'")
    with dask(2, None) as (executor, workers):
        assert workers == 2 and search(network, space, executor, workers).front == outcome.front


@pytest.mark.wide
@pytest.mark.slow
def test_a_killed_search_ends_as_one_that_ran_through(tmp_path: Path) -> None:
    """Killed when some machines are measured, and others not."""
    path, command = tmp_path / "results.jsonl", [sys.executable, "-m", "weft.cli.main", "explore", str(DIGITS)]
    command += ["--part", "xc7z020", *QUICK, "--json"]
    with subprocess.Popen([*command, "--results", str(path)], cwd=ROOT, stdout=subprocess.DEVNULL) as killed:
        while not path.exists() or path.read_bytes().count(b"\n") < 5:
            assert killed.poll() is None
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    ends = []
    for file in (path, tmp_path / "other.jsonl"):
        again = subprocess.run([*command, "--results", str(file)], cwd=ROOT, check=True, capture_output=True)
        ends.append(json.loads(again.stdout)["front"])
    assert ends[0] == ends[1]


@pytest.mark.long
def test_machines_of_the_front_take_these_cycles_in_rtl(outcome: Outcome, network: Network, tmp_path: Path) -> None:
    from weft.runtime.session import RTL, Session
    from weft.simulate.job import MemorySettings
    from weft.tmodel.manifest import TModel

    inputs = {"image": np.load(ROOT / "models" / "digits" / "held_out.npz")["image"][:1]}
    front = outcome.front
    for found in (front[0], front[len(front) // 2], front[-1]):
        report = compile_model(DIGITS, found.point.arch, tmp_path, host_fallback=True)
        memory = MemorySettings(read_latency=LATENCY, write_latency=LATENCY)
        ran = Session(TModel.load(report.model_path)).run(inputs, on=RTL, memory=memory)
        assert ran.comparison is not None and ran.comparison.equal == ran.comparison.words
        assert ran.cycles is not None and abs(ran.cycles - found.cycles) <= 0.01 * found.cycles
