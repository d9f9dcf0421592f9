# SPDX-License-Identifier: Apache-2.0
"""Schedules that hold together pass; each of many damages is refused by name, with core, workload and transfer."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from weft.schedule.check import MOST_FAULTS, faults_of
from weft.schedule.faults import Fault
from weft.schedule.read import schedule_of
from weft.support.errors import WeftError
from weft.tb.bench import mesh_files
from weft.tb.bench.damaged_schedules import BOTH, OLDER_ALONE, TODAY_ALONE, UNREAD, Damage, Named
from weft.tb.shared import shared

PUBLISHED = ("resnet_b1_2x2_SET_IR.json", "goog_b1_2x2_SET_IR.json")
SEEDS = range(3)
WRITTEN = {"older": mesh_files.older, "today": mesh_files.today}
DAMAGES: dict[str, dict[str, Damage]] = {"older": {**UNREAD, **BOTH, **OLDER_ALONE},
                                         "today": {**UNREAD, **BOTH, **TODAY_ALONE}}
NOT_THERE = ("gone_for_a_while",)
"""Damages of what published schedules do not have: no tensor of theirs is in three snapshots."""


def copied(values: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(values))
    return copy


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, Any]]:
    return {name: json.loads(shared(f"vectors/ir/{name}").read_text()) for name in PUBLISHED}


def is_named(fault: Fault, named: Named) -> bool:
    return all(fault.object()[key] == value for key, value in named.items())


def check_refused(values: dict[str, Any], damage: Damage, seed: int) -> None:
    named = damage(values, random.Random(seed))
    if "words" in named:
        with pytest.raises(WeftError) as refused:
            schedule_of(values)
        assert [word for word in named["words"] if word not in str(refused.value)] == [], str(refused.value)
        return
    faults = faults_of(schedule_of(values))
    assert any(is_named(fault, named) for fault in faults), (named, [fault.text() for fault in faults])


@pytest.mark.parametrize("dialect", WRITTEN)
def test_a_schedule_that_holds_together_has_no_fault(dialect: str) -> None:
    schedule = schedule_of(copied(WRITTEN[dialect]()))
    assert (schedule.dialect, len(schedule.by_id), faults_of(schedule)) == (dialect, 28, [])


@pytest.mark.parametrize(("dialect", "damage"), [(dialect, name) for dialect in DAMAGES for name in DAMAGES[dialect]])
def test_a_damage_is_refused_by_name(dialect: str, damage: str) -> None:
    for seed in SEEDS:
        check_refused(copied(WRITTEN[dialect]()), DAMAGES[dialect][damage], seed)


def test_there_are_forty_damages_and_more() -> None:
    assert min(len(damages) for damages in DAMAGES.values()) >= 40


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_schedules_have_no_fault(name: str, published: dict[str, dict[str, Any]]) -> None:
    assert faults_of(schedule_of(copied(published[name]))) == []


@pytest.mark.wide
@pytest.mark.parametrize("damage", [name for name in DAMAGES["older"] if name not in NOT_THERE])
def test_a_damage_of_a_published_schedule_is_refused(damage: str, published: dict[str, dict[str, Any]]) -> None:
    name = PUBLISHED[len(damage) % 2]
    check_refused(copied(published[name]), DAMAGES["older"][damage], 0)


def test_faults_are_bounded() -> None:
    values = mesh_files.older()
    for key in ("1", "2", "5", "6"):
        for workload in values[key]:
            workload["ofmap_size"] = workload["ifmap"]["max_workload_id"] = 1
            for entry in workload["buffer"]:
                entry["block"] += 7
    assert len(faults_of(schedule_of(copied(values)))) == MOST_FAULTS
