# SPDX-License-Identifier: Apache-2.0
"""Small functions behind commands, each by itself: what a break of them shows is not left to whole commands."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pytest

from weft.cli import onnx_backend, places, streams
from weft.hw.contract.arch import Arch
from weft.tb.hostile.case import good


class Kept(io.StringIO):
    """A stream that counts how often it is flushed."""

    flushed = 0

    def flush(self) -> None:
        self.flushed += 1
        super().flush()


def test_a_flush_reaches_the_stream_below() -> None:
    raw = Kept()
    stream = streams.Stream(raw, "standard output")
    stream.write("milk")
    stream.flush()
    assert raw.flushed == 1 and raw.getvalue() == "milk"


@pytest.mark.parametrize(("nodes", "name"), [(["a"], "a"), (["a", "b"], "a .. b"), (["a", "b", "c", "d"], "a .. d"),
                                             (["x" * 40 + "first", "b"], "x" * 11 + "first .. b")])
def test_a_part_is_called_by_its_first_and_its_last_node(nodes: list[str], name: str) -> None:
    row = places._of_machine(3, [SimpleNamespace(node=node, macs=500) for node in nodes])  # type: ignore[misc]
    assert row == ("3", name, f"{len(nodes)} nodes", "machine", f"{500 * len(nodes):,} MACs")


def test_a_network_calibrates_by_its_own_inputs_if_none_are_given() -> None:
    sample = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    found, = onnx_backend.WeftBackend.run_model(good(), [sample], arch=Arch.load("tiny"), host_alone=False)
    wanted = np.maximum(sample.sum(1, keepdims=True).repeat(2, 1), 0)
    assert np.abs(found - wanted).max() < 0.05
