# SPDX-License-Identifier: Apache-2.0
"""The tables of weft estimate lead back to the nodes of the network's file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.cli.cycle_table import short_names
from weft.cli.main import exit_code
from weft.tb.compile.run_model import ModelMaker

PREFIX = "/a/long/name/as/PyTorch/writes/it/"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products of two tensors, each of several layers, whose names differ only before their last 32 characters."""
    folder = tmp_path_factory.mktemp("nodes")
    maker = ModelMaker((1, 8, 8))
    turned = maker.node("Transpose", "x", perm=(0, 2, 1))
    maker.node("MatMul", maker.node("MatMul", "x", turned), "x")
    path = maker.save(folder / "net.onnx")
    model = maker.model()
    for number, node in enumerate(node for node in model.graph.node if node.op_type == "MatMul"):
        node.name = f"/{number}{PREFIX}MatMul"
    path.write_bytes(model.SerializeToString())
    return weft.compile(path, "tiny", folder, calibrate={"x": np.ones((1, 8, 8), np.float32)}).model_path


def test_a_row_for_each_node(compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["estimate", str(compiled), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    nodes, layers = found["nodes"], found["layers"]
    names = [row["name"] for row in nodes]
    assert {f"/0{PREFIX}MatMul", f"/1{PREFIX}MatMul"} <= set(names) and len(names) == len(set(names))
    assert sum(row["layers"] for row in nodes) == len(layers) > len(nodes)
    for row in nodes:
        mine = [layer for layer in layers if layer["name"] == row["name"]]
        assert row["layers"] == len(mine)
        for key in ("cycles", "macs", "done_macs", "vectors", "dram0_bytes", "dram1_bytes"):
            assert row[key] == sum(layer[key] for layer in mine)
        assert row["waits"] == {cause: sum(layer["waits"][cause] for layer in mine) for cause in row["waits"]}
    assert sum(row["cycles"] for row in nodes) + found["tail"] == found["cycles"]


def test_the_table_by_node_and_by_layer(compiled: Path, capsys: pytest.CaptureFixture[str],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert exit_code(["estimate", str(compiled), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for options, rows in ((["--by", "node"], "nodes"), ([], "nodes"), (["--by", "layer"], "layers")):
        assert exit_code(["estimate", str(compiled), *options]) == 0
        head, *lines = capsys.readouterr().out.splitlines()
        assert head.split()[0] == rows.removesuffix("s")
        assert len(lines) == len(found[rows]) + 2
        for number in "01":
            assert any(line.startswith(f"/{number}{PREFIX}MatMul") for line in lines), "both products are known apart"
    assert exit_code(["estimate", str(compiled), "--by", "unit"]) == 1
    assert "--by: found 'unit'; allowed: node, layer" in capsys.readouterr().err


@pytest.mark.parametrize(("names", "wanted"), [
    (["conv1", "conv1", "relu"], ["conv1", "conv1", "relu"]),
    (["x" * 10 + "y" * 40, "z"], ["y" * 32, "z"]),
    (["a" + "y" * 40, "b" + "y" * 40], ["a" + "y" * 40, "b" + "y" * 40]),
    (["/block/0/conv/Conv+/block/0/norm/Mul+/block/0/norm/Add"], ["/block/0/conv/Conv +2"]),
])
def test_names_are_cut_no_further_than_they_differ(names: list[str], wanted: list[str]) -> None:
    assert short_names(names) == wanted
