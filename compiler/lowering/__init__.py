"""Operators of ONNX as operators of the canonical form: a file for each kind."""
