"""The simulation: tools, builds, memories, drivers, and the programs that tests run."""
