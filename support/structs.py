# SPDX-License-Identifier: Apache-2.0
"""Objects with checked keys: those of msgspec, or those of ``plain_structs.py`` where it is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgspec import Meta, Struct, ValidationError, convert, to_builtins
else:
    try:
        from msgspec import Meta, Struct, ValidationError, convert, to_builtins
    except ModuleNotFoundError:
        from weft.support.plain_structs import Meta, Struct, ValidationError, convert, to_builtins

__all__ = ["Meta", "Struct", "ValidationError", "convert", "to_builtins"]
