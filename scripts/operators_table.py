"""Write docs/operators.md: which of the ONNX backend's node tests pass, run on the host, are refused.

It also has the list of these tests."""

from weft.tb.compile.onnx_nodes import LIST, listing
from weft.tb.compile.onnx_table import PLACE, table

if __name__ == "__main__":
    LIST.write_text(listing())
    PLACE.write_text(table())
    print(PLACE)
