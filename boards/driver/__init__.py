# SPDX-License-Identifier: Apache-2.0
"""The driver in C; the one in Python is ``runtime/driver/``."""

from pathlib import Path

SOURCES = Path(__file__).parent / "c"
"""The folder of the C driver's sources."""
