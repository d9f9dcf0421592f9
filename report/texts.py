# SPDX-License-Identifier: Apache-2.0
"""Make a model's names safe to show on a page or in a trace: printable, short, never markup or a script."""

from __future__ import annotations

import html
import json
from typing import Any

LONGEST = 96
"""The most characters of a name that are shown."""


def shown(text: str) -> str:
    """Return a name with unprintable characters as dots, and cut in the middle if it is too long.

    Unprintable are control characters, line separators, and marks that turn the direction of writing. The ends of names
    tell layers apart."""
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half]}…{text[1 - half:]}"
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def in_html(text: str) -> str:
    """Return a name for HTML, between tags and in attributes alike."""
    return html.escape(shown(text), quote=True)


def script_json(values: Any) -> str:
    """Return JSON that may stand in a ``<script>``: ASCII, and nothing in it opens or closes a tag or a comment."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
