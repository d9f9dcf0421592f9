# SPDX-License-Identifier: Apache-2.0
"""A model of the host's part: its work is known before it runs, from its inputs alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

from weft.support.errors import WeftError
from weft.tb.hostile.case import SHAPE
from weft.tb.hostile.host_lies import LEGAL, LIES, SIZES
from weft.tb.hostile.host_work import WORK, applied, nested, part
from weft.tb.hostile.onnx_constants import node
from weft.tmodel.host_part import HostPart
from weft.tmodel.onnx_runnable import MOST_STEPS, check_bytes, check_runnable
from weft.tmodel.onnx_work import EXTRA, HELD, MACS, PLAIN
from weft.tmodel.tensors import Signature, Tensor


@pytest.mark.parametrize("name", [name for name in LEGAL if "15000" not in name])
def test_the_steps_of_a_good_part_are_counted(name: str) -> None:
    known = check_runnable(LEGAL[name]())
    assert 0 < known.steps < MOST_STEPS and list(known.inputs) == ["y"] and list(known.outputs) == ["z"]


@pytest.mark.parametrize("name", [name for table in (WORK, SIZES) for name in table])
def test_work_without_end_is_refused_before_it_runs(name: str) -> None:
    with pytest.raises(WeftError):
        check_bytes({**WORK, **SIZES}[name]().SerializeToString())


def test_a_multiply_accumulate_more_is_a_step_more() -> None:
    """Of two products with the same elements the one with the longer sum has more steps."""
    long, short = (check_runnable(applied("MatMul", *shapes)()).steps
                   for shapes in (((8, 64), (64, 8)), ((64, 8), (8, 64))))
    elements = 64 * (64 * 64 - 8 * 8) + 64 * (64 * 64 - 8 * 8)  # of the result, made and summed
    assert long - short == 8 * 8 * 64 - 64 * 64 * 8 - elements


def test_what_a_file_says_of_sizes_is_not_believed() -> None:
    for name in ("a size that values decide, told as small", "a result told as small",
                 "an operator of onnxruntime's own"):
        with pytest.raises(WeftError):
            check_bytes(LIES[name]().SerializeToString())


def test_functions_are_refused_as_the_compiler_refuses_them() -> None:
    with pytest.raises(WeftError, match="functions of its own, such as 'F0'"):
        check_runnable(nested(24))


def test_every_operator_of_the_tables_is_one_of_onnx() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    assert known >= {*MACS, *EXTRA, *HELD, *PLAIN}
    assert not PLAIN & {*MACS, *EXTRA} and {*HELD} <= {*MACS, *EXTRA}


# -- what the .tmodel says -----------------------------------------------------------------------------------------
CURVE = HostPart(part(node("Cos", ["y"], ["z"])).SerializeToString(), ("y",), ("z",), (), ("Cos",))
VALUE = np.ones(SHAPE, np.float32)


def test_a_part_runs() -> None:
    assert np.allclose(CURVE.run({"y": VALUE}, "net")["z"], np.cos(VALUE))


@pytest.mark.parametrize("told, message", [
    (dataclasses.replace(CURVE, inputs=("q",)), "inputs 'y'; allowed: 'q'"),
    (dataclasses.replace(CURVE, outputs=("z", "q")), "outputs 'z'; allowed: 'z', 'q'")])
def test_names_are_those_of_the_file(told: HostPart, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        told.run({"y": VALUE, "q": VALUE}, "net")


@pytest.mark.parametrize("value", [VALUE.astype(np.int64), VALUE[0], VALUE[:, :1]])
def test_inputs_are_what_the_part_reads(value: np.ndarray) -> None:
    with pytest.raises(WeftError, match="host part of model net, input 'y': found"):
        CURVE.run({"y": value}, "net")


@pytest.mark.parametrize("kind, shape, found", [
    ("float32", (1, 2, 4, 5), "float32"), ("int64", SHAPE, "float32"), ("float32", SHAPE, "int64"),
    ("bool", SHAPE, "int64"), ("int32", SHAPE, "int64")])
def test_outputs_are_what_the_network_promises(kind: str, shape: tuple[int, ...], found: str) -> None:
    signature = Signature((), (Tensor("z", kind, shape),))
    with pytest.raises(WeftError, match="output 'z': found"):
        signature.results({"z": VALUE.astype(found)})


def test_outputs_may_have_another_precision() -> None:
    signature = Signature((), (Tensor("z", "float16", SHAPE),))
    assert signature.results({"z": VALUE})["z"].dtype == np.float16


def test_a_part_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each image."""
    from weft.tmodel import onnx_engine

    made, session = [], onnx_engine.session

    def counted(model: onnx.ModelProto | bytes) -> object:
        made.append(model)
        return session(model)

    monkeypatch.setattr(onnx_engine, "session", counted)
    onnx_engine.runner_of.cache_clear()
    for _ in range(3):
        CURVE.run({"y": VALUE}, "net")
    assert len(made) == 1
