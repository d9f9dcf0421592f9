# SPDX-License-Identifier: Apache-2.0
"""Read back the text that products of the compiler print: dataclasses by name, tuples, literals."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from weft.support.errors import WeftError, explain


def parse_value(content: str, kinds: Iterable[type]) -> Any:
    """Return the value that prints as ``content``. Raise WeftError for other text.

    Only the dataclasses ``kinds`` are made."""
    names = {kind.__name__: kind for kind in kinds}
    try:
        return _value(ast.parse(content.strip(), mode="eval").body, names)
    except (SyntaxError, KeyError, TypeError, ValueError) as error:
        raise WeftError(explain(f"text {content.strip()!r}", f"{type(error).__name__} {error}",
                                f"literals, tuples, and {', '.join(names)} with their fields",
                                "print the product again with --dump-dir")) from None


def _value(node: ast.expr, names: dict[str, type]) -> Any:
    """Return the value of an expression in a product's text."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return names[node.func.id](**{str(entry.arg): _value(entry.value, names) for entry in node.keywords})
    if isinstance(node, ast.Tuple):
        return tuple(_value(entry, names) for entry in node.elts)
    return ast.literal_eval(node)
