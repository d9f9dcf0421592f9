"""Errors of the compiler. A message has four parts: what, found, allowed, way out."""

from __future__ import annotations

from typing import Protocol

from weft.support.errors import WeftError, explain

END = "end the network before it (--end)"
ON_HOST = f"run it on the host (--host-fallback), or {END}"
USE_HOST = f"rewrite this part with supported operators, or {ON_HOST}"


class CompileError(WeftError):
    """A model that cannot be compiled, or files of a compiled model that cannot be used.

    ``node`` is the node of the model that is to blame, empty when there is none; ``why`` says of what of it what was
    found.
    """

    node = ""
    why = ""

    def forget_host(self) -> None:
        """Leave the host out of the ways out: it has all of the network already that it can have."""
        self.args = tuple(str(text).replace(ON_HOST, END) for text in self.args)


class Fault(CompileError):
    """A product that must not be used: a mistake of the compiler, not of its user."""


def reason(error: Exception) -> str:
    """The first line of what another library's error says; its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def refuse(what: str, found: object, allowed: str, way_out: str) -> CompileError:
    """The error for ``what``; the caller raises it."""
    return CompileError(explain(what, found, allowed, way_out))


class Named(Protocol):
    """A node, as far as a message needs it."""

    @property
    def name(self) -> str: ...

    @property
    def op(self) -> str: ...


def refuse_node(node: Named, detail: str, found: object, allowed: str, way_out: str) -> CompileError:
    """The error for a node: ``detail`` is its attribute, input or shape, or empty for the operator itself."""
    what = f"node {node.name!r}, operator {node.op}" + (f", {detail}" if detail else "")
    error = refuse(what, found, allowed, way_out)
    error.node = node.name
    error.why = f"{detail}: {found}" if detail else str(found)
    return error
