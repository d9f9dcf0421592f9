"""The frontend: a model file becomes a graph."""
