# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX as operators of the canonical form: a file for each kind."""
