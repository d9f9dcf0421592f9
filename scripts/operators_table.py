# SPDX-License-Identifier: Apache-2.0
"""Write docs/operators.md and docs/data/onnx_nodes.csv: how each of the ONNX backend's node tests ends.

A test passes, runs on the host, or is refused. The script also writes the list of these tests."""

from weft.tb.compile.onnx_nodes import LIST, listing, outcomes
from weft.tb.compile.onnx_table import CASES, PLACE, write

if __name__ == "__main__":
    LIST.write_text(listing())
    write(list(outcomes()))
    print(PLACE, CASES)
