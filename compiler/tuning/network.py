# SPDX-License-Identifier: Apache-2.0
"""Tuning a network: its parts as problems, the search, and what was found, kept by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from weft.compiler.choices import digest_of
from weft.compiler.digest import tool_digest
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layers
from weft.compiler.memory.variables import live_ranges
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.request import Request
from weft.compiler.tuning import judge
from weft.compiler.tuning.judge import Problem
from weft.compiler.tuning.search import Budget, Progress, Tuned, tune
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import DramModel
from weft.support.cache import cache_directory
from weft.support.outputs import Kind, write_text
from weft.support.processes import processes

_KIND = Kind.of_head("what tuning found", r"\[")


def tune_network(request: Request, arch: Arch, dram: DramModel, budget: Budget, jobs: int,
                 progress: Progress) -> list[Tuned]:
    """Search for choices for each subgraph of the machine, in ``jobs`` processes.

    What an earlier search found for the same network, machine, memory, budget and compiler is taken as it is. Raise
    WeftError for everything that the user can mend."""
    _, made = run_parts(request, arch, last="consts")
    problems = [problem_of(request, products, dram) for products in made]
    file = cache_directory("tuning") / f"{search_digest(problems, budget)}.json"
    known = _known(file)
    if known is not None:
        return known
    with processes(jobs, partial(judge.begin, problems)) as executor:
        found = tune(problems, budget, executor, progress)
    whose = [replace(each, choices=replace(each.choices, layers=digest_of(problem.layers, arch)))
             for each, problem in zip(found, problems, strict=True)]
    write_text(file, msgspec.json.encode(whose).decode(), _KIND)
    return whose


def problem_of(request: Request, products: Products, dram: DramModel) -> Problem:
    """Return a part of a network, compiled as far as its constants, as a problem of the search."""
    layers = products[Layers]
    lives = live_ranges(products[Graph], layers, products[Arch], request.keep_tensors)
    return Problem(lives, layers, products[Consts], products[Numbers], products[Arch], dram)


def _known(file: Path) -> list[Tuned] | None:
    """Return the tuned subgraphs in a cached file, None if there is no file that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Tuned])
    except (OSError, msgspec.DecodeError):
        return None


def search_digest(problems: Sequence[Problem], budget: Budget) -> str:
    """Return a digest of all that decides what a search finds, the tool itself among it."""
    found = hashlib.sha256(repr(budget).encode() + tool_digest().encode())
    for problem in problems:
        found.update(json.dumps([digest_of(problem.layers, problem.arch), repr(problem.dram)]).encode())
        found.update(problem.consts.vectors.tobytes())
    return found.hexdigest()[:32]
