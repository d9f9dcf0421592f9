"""A compiled model on any machine: its files, the packing of inputs and outputs, a session on golden or RTL."""
