"""Passes: graph to graph, in the order of compiler/pipeline.py; operators are lowered in compiler/lowering."""
