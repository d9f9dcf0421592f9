"""Runs compiled models, on the golden machine or on the RTL in simulation: with the CLI, all that may import ``tb``."""
