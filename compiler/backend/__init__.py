"""The backend: LIR becomes the files of a compiled model."""
