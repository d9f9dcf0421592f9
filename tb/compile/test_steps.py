# SPDX-License-Identifier: Apache-2.0
"""Steps: what each needs is there before it, what it makes prints itself, and what runs is the newest product."""

from __future__ import annotations

import pytest

from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.split import Cores
from weft.compiler.check.runners import RUNNERS, newest
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layers
from weft.compiler.parameters import Parameters
from weft.compiler.pipeline import STEPS, steps_of
from weft.compiler.products import Products, Step, checked
from weft.compiler.request import Request


class Dough:
    def __init__(self, content: str) -> None:
        self.content = content

    def text(self) -> str:
        return f"dough of {self.content}\n"


class Bread(Dough):
    pass


def mix(content: str) -> Dough:
    return Dough(content)


def bake(dough: Dough) -> Bread:
    return Bread(f"baked {dough.content}")


def halve(dough: Dough) -> tuple[Bread, Dough]:
    return Bread(dough.content), Dough(f"half the {dough.content}")


def taste(bread: Bread) -> None:
    assert bread


def count(bread: Bread) -> int:
    return len(bread.content)


def test_a_step_is_its_functions_types() -> None:
    assert Step("halve", halve).needs == (Dough,) and Step("halve", halve).makes == (Bread, Dough)
    assert Step("taste", taste).makes == ()


def test_the_newest_product_of_a_type_counts() -> None:
    products = Products({str: "rye"})
    for step in (Step("mix", mix), Step("bake", bake), Step("halve", halve), Step("taste", taste)):
        before, products = products, step.run(products)
        assert before is not products
    assert products[Dough].content == "half the rye" and products[Bread].content == "rye"
    assert list(products) == [str, Bread, Dough]
    assert Step("halve", halve).text(products) == "dough of rye\ndough of half the rye\n"
    assert Step("taste", taste).text(products) == "no fault found\n"


def test_a_product_that_is_not_made_is_not_none() -> None:
    with pytest.raises(KeyError):
        Products({str: "rye"})[Dough]
    assert Products({}).get(Dough) is None


def test_a_step_too_early_is_found() -> None:
    order = (Step("mix", mix), Step("bake", bake), Step("taste", taste))
    assert checked((str,), order) == order
    with pytest.raises(TypeError, match="step 'taste' needs .*Bread"):
        checked((str,), (order[0], order[2], order[1]))
    with pytest.raises(TypeError, match="step 'mix' needs .*str"):
        checked((), order)
    with pytest.raises(TypeError, match="step 'count' makes .*int.* no text"):
        checked((str,), (*order, Step("count", count)))


@pytest.mark.parametrize("parameters", Parameters)
def test_the_pipeline_begins_with_a_request_and_ends_with_machine_code_of_all_cores(parameters: Parameters) -> None:
    names = [step.name for step in steps_of(parameters)]
    assert len(set(names)) == len(names) and set(names) < {step.name for step in STEPS}
    assert STEPS[0].needs == (Request,) and [step.makes for step in STEPS[-2:]] == [(MachineCode,), (Cores,)]
    assert set(RUNNERS) <= {kind for step in STEPS for kind in step.makes}


def test_what_was_made_last_runs() -> None:
    products = Products({Graph: "graph", Layers: "layers", Dough: "nothing that runs"})
    assert newest(products) is Layers
    assert newest(products.plus({Graph: "another graph"})) is Graph
