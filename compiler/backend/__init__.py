"""Backend: LIR becomes files."""
