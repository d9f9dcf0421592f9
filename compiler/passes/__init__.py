# SPDX-License-Identifier: Apache-2.0
"""Passes: functions from graph to graph, in the order of ``compiler/pipeline.py``.

Operators are lowered in ``compiler/lowering``."""
