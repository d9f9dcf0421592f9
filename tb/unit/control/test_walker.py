# SPDX-License-Identifier: Apache-2.0
"""The walker against its reference: addresses, first and last, no gap between operations."""

from __future__ import annotations

from random import Random

import pytest
from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import walk_layout
from weft.hw.parts.walker import Walker
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Sink, Source
from weft.tb.bench.block_ports import from_bits, to_bits
from weft.tb.random.random_operations import random_tile

ARCH = Arch.load("tiny").replace(local_depth=50, accumulator_depth=23)
NAMES = ("local", "accumulator")


def operations(rng: Random, count: int) -> list[dict]:
    return [random_tile(rng, 9, 4, 6, local=50, accumulator=23) for _ in range(count)]


def expected(operation: dict, names: tuple[str, ...], descending: bool = False) -> list[dict]:
    """What comes out for one operation, by the definition of a walk."""
    walks = {name: Walker.reference(operation, name, descending=descending) for name in names}
    count = len(walks[names[0]])
    return [{**{name: walk[k] for name, walk in walks.items()}, "first": k == 0, "last": k == count - 1}
            for k in range(count)]


def run(walker: Walker, given: list[dict], names: tuple[str, ...], rng: Random, rate: float, take: float,
        descending: bool = False) -> tuple[Source, Sink]:
    layout = walker.i.payload.shape()
    right = [step for operation in given for step in expected(operation, names, descending)]
    source = Source("i", [to_bits(layout, operation) for operation in given], rng, rate)
    sink = Sink("o", rng, len(right), take)
    simulate(walker, source, sink)
    found = [from_bits(walker.payload, raw) for raw in sink.items]
    owners = [operation for operation in given for _ in expected(operation, names)]
    assert [{key: step[key] for key in right[0]} for step in found] == right
    assert [to_bits(layout, step["operation"]) for step in found] == [to_bits(layout, owner) for owner in owners]
    return source, sink


@pytest.mark.parametrize(("rate", "take"), ((1.0, 1.0), (0.4, 1.0), (1.0, 0.4), (0.5, 0.5)))
def test_addresses_follow_the_reference_whatever_the_stalls(rate: float, take: float) -> None:
    rng = Random(11)
    run(Walker(operation_layout(ARCH, "mat_mul"), NAMES), operations(rng, 60), NAMES, rng, rate, take)


def test_vectors_go_down_when_descending() -> None:
    rng = Random(12)
    given = []
    for operation in (random_tile(rng, 9, 1, 6, local=50) for _ in range(60)):
        walk = operation["local"]
        last = walk["base"] + (operation["size_m1"] << walk["stride_log2"])
        given.append({**operation, "local": {**walk, "base": last}})
    walker = Walker(operation_layout(ARCH, "load_weight"), ("local",), descending=True)
    run(walker, given, ("local",), rng, 0.7, 0.7, True)


def test_one_address_a_cycle_without_a_gap_between_operations() -> None:
    rng = Random(13)
    given = [*operations(rng, 30), *({"size_m1": 0, "rows_m1": 0, "local": {"base": 3}, "accumulator": {"base": k}}
                                     for k in range(5))]
    given = [{**operation, **{name: {"stride_log2": 0, "pitch": 0, **operation[name]} for name in NAMES}}
             for operation in given]
    source, sink = run(Walker(operation_layout(ARCH, "mat_mul"), NAMES), given, NAMES, rng, 1.0, 1.0)
    first = source.taken[0] + Walker.LATENCY
    assert sink.taken == list(range(first, first + len(sink.items)))


def test_widest_walks_do_not_overflow() -> None:
    """Strides, sizes and rows at the ends of their fields."""
    layout = data.StructLayout({"size_m1": 16, "rows_m1": 16, "local": walk_layout(Arch.load("arty"), 16)})
    given = [{"size_m1": 3, "rows_m1": 0, "local": {"base": 0, "stride_log2": 7, "pitch": 65535}},
             {"size_m1": 0, "rows_m1": 3, "local": {"base": 65535 - 3, "stride_log2": 7, "pitch": 1}},
             {"size_m1": 1, "rows_m1": 1, "local": {"base": 65535 - 128 - 32768, "stride_log2": 7, "pitch": 32768}},
             {"size_m1": 299, "rows_m1": 1, "local": {"base": 1, "stride_log2": 0, "pitch": 0}}]
    run(Walker(layout, ("local",)), given, ("local",), Random(14), 1.0, 1.0)
