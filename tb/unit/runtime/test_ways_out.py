# SPDX-License-Identifier: Apache-2.0
"""Every way out of the runtime, without a compiler or a simulator: arrays, images, registers, programs that stop."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import Register
from weft.runtime.arrays import read_arrays, write_arrays
from weft.runtime.compare import Mismatch
from weft.runtime.devices import Done, Golden, sampling, simulated
from weft.runtime.images import MOST_IMAGES, are_counted
from weft.runtime.images import together as joined
from weft.runtime.programs import Batch, image_a_core
from weft.runtime.run_settings import RunSettings
from weft.runtime.saturations import BY_RANGES, Saturated, saturated, together
from weft.runtime.session import Session
from weft.runtime.streaming import checked
from weft.simulate.make import BuildError
from weft.simulate.simulation import SimulationError
from weft.support.errors import WeftError
from weft.tb.hostile.arrays import NPY, NPZ
from weft.tb.hostile.odd_kinds import ARCHIVES
from weft.tb.unit.runtime.models import TINY, VECTORS, echo, model
from weft.tmodel.ports import Port
from weft.tmodel.tensors import Tensor

LARGE_OR_LEGAL = ("a bomb of 300 MB", "a bomb of 2 GB", "20000 members", "200000 members", "10000 members")
"""Archives that take a second each: ``scripts/hostile.py`` has them."""
FILES: dict[str, Any] = {**NPY, **NPZ, **{f"odd: {name}": content for name, content in ARCHIVES.items()}}


@pytest.mark.parametrize(("shape", "given", "counted"), [
    ((1, 4), (1, 4), False), ((1, 4), (3, 1, 4), True), ((1, 4), (4,), False), (None, (3, 1, 4), False)])
def test_an_axis_more_than_the_network_has_counts_images(shape: Any, given: tuple[int, ...], counted: bool) -> None:
    """An input of no known shape says nothing, nor does one that is not given."""
    inputs = [SimpleNamespace(name="x", shape=shape), SimpleNamespace(name="y", shape=())]
    network: Any = SimpleNamespace(signature=SimpleNamespace(inputs=inputs))
    assert are_counted(network, {"x": np.zeros(given)}) == counted


@pytest.mark.parametrize("name", [name for name in FILES if name.removeprefix("odd: ") not in LARGE_OR_LEGAL])
def test_a_damaged_file_is_refused_or_numbers(name: str, tmp_path: Path) -> None:
    content = FILES[name] if isinstance(FILES[name], bytes) else FILES[name]()
    (tmp_path / "x").write_bytes(content)
    try:
        found = read_arrays(tmp_path / "x", ["x"])
    except WeftError as error:
        assert "; allowed: " in str(error) and "; way out: " in str(error)
    else:
        assert found["x"].dtype.kind != "O"


def test_an_archive_whose_directory_is_too_long_to_read(tmp_path: Path) -> None:
    """Comments make a directory of 4.5 MB with 70 members; nor is it a file that a run may replace."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for number in range(70):
            member = zipfile.ZipInfo(f"{number}.npy")
            member.comment = bytes(65000)
            archive.writestr(member, b"")
    with pytest.raises(WeftError, match=r"a directory of 45\d+ bytes\); allowed: .npz or .npy .*; way out: write it"):
        read_arrays(tmp_path / "x.npz", ["x"])
    with pytest.raises(WeftError, match="way out: "):
        write_arrays(tmp_path / "x.npz", {"x": VECTORS})


def test_a_member_that_ends_before_its_stated_length(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.save(content, VECTORS)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content.getvalue()[:-5])
        archive.filelist[0].file_size += 5
    with pytest.raises(WeftError, match=r"the data end after 11 of 16 bytes\); allowed: .*; way out: "):
        read_arrays(tmp_path / "x.npz", ["x"])


def test_outputs_without_a_leading_one_are_stacked_where_there_are_more_images() -> None:
    """An axis that counts images stacks the outputs of a single one too."""
    first, second = np.arange(3), np.arange(3) + 7
    assert joined([{"y": first}, {"y": second}])["y"].tolist() == [[0, 1, 2], [7, 8, 9]]
    assert joined([{"y": first}], counted=True)["y"].tolist() == [[0, 1, 2]]
    assert joined([{"y": first}])["y"].tolist() == [0, 1, 2]
    assert joined([{"y": first[None]}, {"y": second[None]}])["y"].tolist() == [[0, 1, 2], [7, 8, 9]]


def test_a_lone_array_is_not_two(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    with pytest.raises(WeftError, match="one array without a name; allowed: an array for each input: a, b"):
        read_arrays(tmp_path / "x.npy", ["a", "b"])


@pytest.mark.parametrize(("inputs", "options", "said"), [
    ({"x": VECTORS.astype(np.float32)}, {"raw": True}, "values of type float32; allowed: integers"),
    ({"x": VECTORS.astype(np.int64) + 40_000}, {"raw": True}, "allowed: -32768..32767"),
    ({"x": VECTORS.astype(np.int64) - 40_000}, {"raw": True}, "allowed: -32768..32767"),
    ({"y": VECTORS}, {"raw": True}, "arrays 'y'; allowed: an array for each input"),
    ({}, {"raw": True}, "arrays none"), (None, {"raw": True}, "inputs: found a NoneType; allowed: a dict"),
    ({"x": VECTORS}, {}, "no tensor shapes"),
    ({"x": np.broadcast_to(VECTORS, (MOST_IMAGES + 1, *VECTORS.shape))}, {"raw": True}, "at most 65536 in one run"),
    ({"x": VECTORS}, {"raw": True, "most": 0}, "images: found at most 0; allowed: 1 or more"),
    ({"x": VECTORS}, {"raw": True, "most": -3}, "images: found at most -3"),
    ({"x": [[1, 2], [3]]}, {"raw": True}, "input 'x': found what is no array"),
    ({"x": VECTORS}, {"raw": True, "on": "moon"}, "machine: found 'moon'; allowed: golden, rtl, or a Device"),
])
def test_inputs_that_do_not_fit(inputs: Mapping[str, np.ndarray], options: dict[str, Any], said: str,
                                tmp_path: Path) -> None:
    with pytest.raises(WeftError, match=said):
        Session(echo(tmp_path)).run(inputs, **options)


def test_inputs_have_as_many_images_as_each_other(tmp_path: Path) -> None:
    made = echo(tmp_path)
    two = dataclasses.replace(made, inputs=(*made.inputs, Port("more", 4, 4)))
    inputs = {"x": np.stack([VECTORS] * 2), "more": np.stack([VECTORS] * 3)}
    with pytest.raises(WeftError, match="x with 2 images, more with 3 images; allowed: the same number"):
        Session(two).run(inputs, raw=True)


def test_what_was_not_measured_is_not_told(tmp_path: Path) -> None:
    """The golden machine counts no cycles, and a hand-made model does not say its multiply-accumulates."""
    found = Session(echo(tmp_path)).run({"x": VECTORS}, raw=True)
    assert found.cycles is None and found.utilization is None
    assert dataclasses.replace(found, cycles=10, done_macs=20).utilization == 20 / (10 * TINY.array_size ** 2)
    assert dataclasses.replace(found, cycles=1, done_macs=2000).utilization == 1


def test_a_model_keeps_to_the_machine_that_it_was_compiled_for(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="architecture key array_size: found 4; allowed: 2, which the model"):
        Session(echo(tmp_path), TINY.replace(array_size=4))


# -- registers and samples -------------------------------------------------------------------------------------------
def test_only_registers_that_differ_from_reset_are_written() -> None:
    assert RunSettings().registers(TINY) == {} and not RunSettings().watched
    assert RunSettings(dram0_cache=3).registers(TINY) == {Register.DRAM0_CACHE: 3}
    assert not RunSettings(dram0_cache=3, dram1_cache=1).watched
    assert RunSettings(timeout_cycles=7).watched and RunSettings(tracepoint=0).watched


@pytest.mark.parametrize(("settings", "said"), [
    (RunSettings(dram1_cache=16), "DRAM1_CACHE: found 16; allowed: 0 to 15"),
    (RunSettings(timeout_cycles=-1), "TIMEOUT: found -1; allowed: 0 to "),
    (RunSettings(sample_cycles=5), "a machine with sampler 0"),
])
def test_registers_that_do_not_hold_it(settings: RunSettings, said: str) -> None:
    with pytest.raises(WeftError, match=said):
        settings.registers(TINY.replace(sampler=0))


def test_samples_are_asked_for_by_two_instructions_or_none() -> None:
    assert sampling(TINY, 0) == b""
    asked = Isa(TINY).disassemble(sampling(TINY, 100))
    assert [each.operand0 for each in asked] == [Register.SAMPLE_INTERVAL, Register.PROGRAM_COUNTER]


# -- programs that stop ----------------------------------------------------------------------------------------------
RAN: Any = SimpleNamespace(log_file=Path("/dev/null"), seed=5, command="again")


@pytest.mark.parametrize(("error", "kind", "said"), [
    (BuildError("no compiler"), WeftError, "no compiler"),
    (SimulationError("no end", RAN), Mismatch, "the simulation failed: no end")])
def test_a_simulation_that_fails(error: Exception, kind: type[Exception], said: str) -> None:
    def run() -> None:
        raise error

    with pytest.raises(kind, match=said):
        simulated(run)


class Stops(Golden):
    """A device whose programs stop at instruction 3."""

    name = "board"

    def run(self, *_: Any) -> list[list[Done]]:
        return [[Done(instructions=3, cycles=None, seconds=0.0, cause=Cause.OPCODE, program_counter=3)]]


def test_a_program_that_stops_names_where(tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match="stopped at instruction 3 with cause OPCODE$"):
        Session(echo(tmp_path)).run({"x": VECTORS}, on=Stops(TINY), raw=True)


# -- images over cores -------------------------------------------------------------------------------------------------
def cores_of(cores: int) -> Arch:
    return TINY.replace(cores=cores, dram_ports=SHARED, memory_ports=1, stream_width=TINY.axi_data_width, sampler=0)


def test_groups_of_cores_and_where_their_instructions_come_from() -> None:
    """Three cores and five images: image 4 is of core 1 in the second group, and its window comes first."""
    arch = cores_of(3)
    isa = Isa(arch)
    program = isa.assemble([isa.no_op()] * 4)
    batch = Batch(isa, program, 1 << 16)
    groups = batch.groups(5)
    assert [len(group) for group in groups] == [3, 2] and len(image_a_core(program, arch)) == 3
    assert groups[0][0] == program
    window, *rest = isa.disassemble(groups[1][1])
    assert window.operand0 == Register.DRAM0_OFFSET and len(rest) == 4
    assert batch.place(1, 1, 0) == (4, -1) and batch.place(1, 1, 4) == (4, 3) and batch.place(0, 0, 0) == (0, 0)


def test_a_network_over_all_cores_is_one_group_an_image() -> None:
    isa = Isa(cores_of(2))
    first, other = isa.assemble([isa.no_op()]), isa.assemble([isa.no_op()] * 2)
    batch = Batch(isa, first, 1 << 16, others=(other,))
    assert batch.most_images == 1 and batch.groups(2) == [[first, other]] * 2 and batch.place(7, 1, 3) == (7, 3)


def test_an_illegal_instruction_is_named_before_cores_run_side_by_side(tmp_path: Path) -> None:
    arch = cores_of(2)
    isa = Isa(arch)
    beyond = isa.data_move(DataFlow.DRAM0_TO_LOCAL, arch.local_depth - 1, 0, 2)
    made = model(tmp_path, arch, [isa.no_op(), beyond], [], bases=())
    with pytest.raises(MachineStop, match="instruction 1.*; allowed: .*; way out: ") as stop:
        Session(made).run({"x": np.stack([VECTORS] * 2)}, raw=True)
    assert stop.value.cause is Cause.LOCAL_RANGE and stop.value.core is None


# -- counts and states -------------------------------------------------------------------------------------------------
def test_counts_of_which_one_is_unknown_are_unknown() -> None:
    some = Saturated(2, 1, (3,))
    assert together([some, None]) is None and together([some, Saturated(1, 0, (1, 3))]) == Saturated(3, 1, (1, 3))


def test_saturations_that_ranges_are_meant_to_have_are_told_apart(tmp_path: Path) -> None:
    """Three layers: one may saturate by --ranges, one by what it is, one must not."""
    rows = ({"name": "a", "saturates": BY_RANGES}, {"name": "b", "saturates": "a hard sigmoid"}, {"name": "c"})
    made = dataclasses.replace(echo(tmp_path, extra=1), layers=rows, instruction_layers=np.array([0, 1, 2]))
    batch = Batch(Isa(TINY), made.program, 1 << 16)
    found = saturated(made, batch, [[{0: 5, 1: 7, 2: 11}]], first=4)
    assert found == Saturated(11, 5, (4,))


@pytest.mark.parametrize(("states", "said"), [
    ({"moon": "x"}, "no output 'moon'; allowed: outputs 'y', 'z'"), ({"y": "moon"}, "no input 'moon'"),
    ({"y": "x", "z": "x"}, "input 'x' twice"), ({"z": "x"}, r"an output of float32 \(1, 3\)"),
    ({"y": "x", "v": "w"}, "every input of the network")])
def test_states_that_cannot_be_passed_on(states: dict[str, str], said: str) -> None:
    tensors = {name: Tensor(name, "float32", (1, size)) for name, size in (
        ("x", 2), ("w", 2), ("y", 2), ("z", 3), ("v", 2))}
    outputs = [tensors[name] for name in ("y", "z", "v") if name != "v" or "v" in states]
    network: Any = SimpleNamespace(signature=SimpleNamespace(inputs=[tensors["x"], tensors["w"]], outputs=outputs))
    with pytest.raises(WeftError, match=said):
        checked(network, states)


