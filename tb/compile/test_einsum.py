# SPDX-License-Identifier: Apache-2.0
"""An Einsum of two tensors is a product of matrices on the machine; others stay for the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.reader import read_model
from weft.tb.compile.run_model import BASE, ModelMaker, check_model

SAMPLES = np.random.default_rng(0).standard_normal((2, 5, 12))


@pytest.mark.parametrize(("equation", "shape"), [
    ("bnd,dhk->bhnk", (12, 2, 4)), ("bnd,de", (12, 6)), ("bnd,dhk->kbnh", (12, 3, 2)), ("bnd,bmd->bnm", ()),
    ("bnd,bmd->bmn", ()), ("bnd,bne->bde", ()), ("bnd,n->bnd", (5,)), ("bnd,mn->bmd", (4, 5)), ("xyz,yz->xy", (5, 12)),
    ("abc,cd->dab", (12, 3)), ("bnd,bnd->", (1, 5, 12))])
def test_a_product_runs_on_the_machine(equation: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    made = ModelMaker((1, 5, 12), opset=17)
    second = made.normal(*shape) if shape else made.node("MatMul", "x", made.normal(12, 12))
    made.node("Einsum", "x", second, equation=equation)
    check_model(made.save(tmp_path / "sum.onnx"), BASE, SAMPLES, 50)


def test_a_constant_on_the_left(tmp_path: Path) -> None:
    made = ModelMaker((1, 5, 12), opset=17)
    made.node("Einsum", made.normal(3, 12), "x", equation="ed,bnd->bne")
    check_model(made.save(tmp_path / "sum.onnx"), BASE, SAMPLES, 50)


@pytest.mark.parametrize(("equation", "inputs"), [
    ("bnn->bn", 1), ("...d,de->...e", 2), ("bnd,dee->bne", 2), ("bnd,de->ne", 2), ("bnd,de,ef->bnf", 3)])
def test_what_is_no_product_of_two_stays(equation: str, inputs: int, tmp_path: Path) -> None:
    made = ModelMaker((1, 5, 5), opset=17)
    shapes = [(5,) * len(term) for term in equation.split("->")[0].split(",")[1:]]
    made.node("Einsum", "x", *(made.normal(*shape) for shape in shapes), equation=equation)
    assert len(made.nodes[0].input) == inputs
    assert [node.op for node in read_model(made.save(tmp_path / "sum.onnx")).nodes] == ["Einsum"]
