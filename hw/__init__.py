"""The hardware: the contract (arch, numerics, isa, csr, timing) and the Amaranth blocks that keep it."""
