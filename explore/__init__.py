"""The search for a machine: which of many is the fastest for some networks, for what it takes of a chip."""
