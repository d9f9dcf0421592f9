# SPDX-License-Identifier: Apache-2.0
"""The ONNX backend's own node tests: some here, all of them with ``make test-onnx``, which also checks the table."""

from __future__ import annotations

import onnx
import pytest

from weft.compiler.lowering.operators import OPERATORS
from weft.tb.compile.onnx_nodes import (
    FAILED,
    HOST,
    LEAST_EITHER,
    LEAST_PASSED,
    LIST,
    PASSED,
    listed,
    listing,
    outcomes,
    run_case,
)
from weft.tb.compile.onnx_table import CASES, PLACE, data, either, page, share

HOST_FAILS = {
    "test_attention_4d_diff_heads_mask4d_padded_kv",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal", "test_bernoulli_seed",
    "test_maxunpool_export_with_output_shape", "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners", "test_training_dropout", "test_training_dropout_default",
    "test_training_dropout_default_mask", "test_training_dropout_mask"}
"""Cases that the machine refuses, and that onnxruntime and ONNX's evaluator do not compute as the case wants it."""

EVERY = 4
"""Of the cases of each operator, the first and every so many after it run in ``make test``."""


def some() -> set[str]:
    names: dict[str, list[str]] = {}
    for name, operator in listed().items():
        names.setdefault(operator, []).append(name)
    return {name for each in names.values() for name in each[::EVERY]}


SOME = some()


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_row_names_what_onnx_has(name: str) -> None:
    """Attributes of some version of the operator, and inputs that it takes."""
    schemas = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name == name]
    row = OPERATORS[name]
    assert set(row.attributes) <= {attribute for schema in schemas for attribute in schema.attributes}
    assert max(row.constants, default=0) < max(schema.max_input for schema in schemas)


@pytest.mark.wide
def test_the_list_holds_every_case() -> None:
    assert LIST.read_text() == listing(), "write it anew with scripts/operators_table.py"


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SOME else pytest.mark.long)
                                  for name in listed()])
def test_never_silently_wrong(name: str) -> None:
    """Right within the tolerance, where the machine refuses it with a message of four parts on the host."""
    outcome = run_case(name)
    assert outcome.status in (PASSED, HOST) or name in HOST_FAILS, outcome.detail
    if outcome.status != PASSED:
        assert all(part in outcome.detail for part in (": found ", "; allowed: ", "; way out: ")), outcome.detail


@pytest.mark.long
def test_table_is_that_of_the_documentation() -> None:
    found = list(outcomes())
    assert share(found) >= LEAST_PASSED and either(found) >= LEAST_EITHER
    assert {outcome.case for outcome in found if outcome.status == FAILED} == HOST_FAILS
    assert PLACE.read_text() == page(found), "write it anew with scripts/operators_table.py"
    assert CASES.read_text() == data(found), "write it anew with scripts/operators_table.py"
