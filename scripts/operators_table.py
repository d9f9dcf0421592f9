"""Writes docs/operators.md: which of the ONNX backend's node tests pass, run on the host, are refused."""

from weft.tb.compile.onnx_table import PLACE, table

if __name__ == "__main__":
    PLACE.write_text(table())
    print(PLACE)
