"""Names from a model as a page or a trace may show them: printable, short, and never markup or a script."""

from __future__ import annotations

import html
import json
from typing import Any

LONGEST = 96
"""Characters of a name that are shown."""


def shown(text: str) -> str:
    """What does not print (control characters, line separators, marks that turn the direction of writing) becomes a
    dot; what is too long is cut in the middle, for the ends of names tell layers apart."""
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half]}…{text[1 - half:]}"
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def in_html(text: str) -> str:
    """For HTML, between tags and in attributes alike."""
    return html.escape(shown(text), quote=True)


def script_json(values: Any) -> str:
    """JSON that may stand in a ``<script>``: ASCII, and nothing in it opens or closes a tag or a comment."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
