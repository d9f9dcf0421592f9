# SPDX-License-Identifier: Apache-2.0
"""Random small networks, each decided by the name of a machine and a seed.

What a network must do to pass, and the machines, are in ``network_rule.py``. A change of the generator changes the
networks: a seed that found a fault becomes a test of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.tb.random.random_functions import FUNCTION_OPERATORS
from weft.tb.random.random_network import Network
from weft.tb.random.random_operators import OPERATORS, convolution, last_matrix, table


@dataclass(frozen=True)
class Case:
    """A machine and a seed, which together decide the network."""

    arch: str
    seed: int

    @property
    def command(self) -> str:
        """Return the command that repeats it."""
        return f"python scripts/random_networks.py --arch {self.arch} --first {self.seed} --count 1"


FUNCTIONS = "functions"
"""What names of machines begin with whose networks have the operators of ``random_functions.py`` too."""


def generate(case: Case, tables: bool) -> Network:
    """Return a network of some operators; with ``tables`` there may be functions that need a lookup table."""
    net = Network(case.arch, case.seed)
    weights = {**OPERATORS, **FUNCTION_OPERATORS} if case.arch.startswith(FUNCTIONS) else OPERATORS
    operators = [operator for operator in weights if tables or operator is not table]
    chances = np.array([weights[operator] for operator in operators])
    for _ in range(net.integer(1, 9)):
        operators[net.random.choice(len(operators), p=chances / chances.sum())](net)
    if net.unread == {"x"}:
        convolution(net)
    if net.maybe(0.3):
        last_matrix(net)
    return net
