"""Frontend: a model file becomes a graph."""
