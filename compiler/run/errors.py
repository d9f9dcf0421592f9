"""What running a program may find wrong with the hardware, as opposed to with what the user gave (WeftError)."""

from __future__ import annotations


class Mismatch(Exception):
    """RTL and golden machine do not agree, or the RTL did not come to an end. The command line exits with 2."""
