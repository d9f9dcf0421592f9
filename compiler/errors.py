# SPDX-License-Identifier: Apache-2.0
"""Errors of the compiler. A message has four parts: what, found, allowed, way out."""

from __future__ import annotations

from typing import Protocol

from weft.support.errors import WeftError, explain

END = "end the network before it (--end)"
ON_HOST = f"run it on the host (--host-fallback), or {END}"
USE_HOST = f"rewrite this part with supported operators, or {ON_HOST}"


class CompileError(WeftError):
    """The error for a model that cannot be compiled, or for files of a compiled model that cannot be used.

    ``node`` is the name of the model's node at fault, empty if there is none; ``why`` says what was found about it.
    ``of_order``: only the order in which elements lie that the node reads is at fault."""

    node = ""
    why = ""
    of_order = False

    def forget_host(self) -> None:
        """Remove the host from the ways out, for networks that the host already gets in part."""
        self.args = tuple(str(text).replace(ON_HOST, END) for text in self.args)


class Fault(CompileError):
    """The error for a product that must not be used: a mistake of the compiler, not of its user."""


def reason(error: Exception) -> str:
    """Return the first line of another library's error message, or its type if it has no message."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def refuse(what: str, found: object, allowed: str, way_out: str) -> CompileError:
    """Return the error for ``what``; the caller raises it."""
    return CompileError(explain(what, found, allowed, way_out))


class Named(Protocol):
    """A node as error messages need it: name and operator."""

    @property
    def name(self) -> str:
        """The name of the node."""

    @property
    def op(self) -> str:
        """The operator of the node."""


def refuse_node(node: Named, detail: str, found: object, allowed: str, way_out: str) -> CompileError:
    """Return the error for a node; ``detail`` is its attribute, input or shape, or empty for the operator itself."""
    what = f"node {node.name!r}, operator {node.op}" + (f", {detail}" if detail else "")
    error = refuse(what, found, allowed, way_out)
    error.node = node.name
    error.why = f"{detail}: {found}" if detail else str(found)
    return error
