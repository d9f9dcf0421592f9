# SPDX-License-Identifier: Apache-2.0
"""Breaks that a machine draws: one operator, number, statement or condition of a room's sources, changed.

Breaks by hand show that a test finds the mistake that it was written for. Drawn ones ask what nobody thought of: which
line of a room may be wrong with all of its tests passing. `python scripts/mutate.py --draw COUNT` runs them."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from weft.tb.mutations import Break

ROOT = Path(__file__).resolve().parents[2]
COMPARED: dict[type, str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
                             ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}
COMPUTED: dict[type, str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "//",
                             ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|"}
NAMED = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum",
         "floor": "ceil", "ceil": "floor"}
"""Functions that are taken for their opposite."""
SPOKEN = {"print", "echo", "error", "warn", "Option", "Argument", "Key"}
"""Calls whose arguments are words and no behaviour."""


@dataclass(frozen=True)
class Room:
    """Sources in which breaks are drawn, and the tests of `make test` that must find them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "golden": Room(("golden/*.py",), ("tb/unit/golden", "tb/unit/simd", "tb/system")),
    "contract": Room(("hw/contract/*.py", "hw/contract/schemes/*.py"), ("tb/unit/contract", "tb/unit/golden",
                                                                      "tb/unit/control", "tb/system")),
    "runtime": Room(("runtime/*.py", "tmodel/*.py"), ("tb/unit/runtime", "tb/e2e", "tb/compile")),
    "driver": Room(("runtime/driver/*.py",), ("tb/unit/driver", "tb/unit/boards")),
    "cycles": Room(("cycles/*.py",), ("tb/system/test_estimator_directed.py", "tb/system/test_estimator.py",
                                      "tb/unit/runtime/test_estimate.py", "tb/unit/boards")),
    "compiler": Room(("compiler/*.py", "compiler/*/*.py"), ("tb/compile", "tb/e2e")),
    "tflite": Room(("compiler/frontend/tflite/*.py",), ("tb/compile",)),
    "schedule": Room(("schedule/*.py",), ("tb/unit/schedule",)),
    "hw": Room(("hw/*.py", "hw/array/*.py", "hw/bus/*.py", "hw/control/*.py", "hw/memory/*.py", "hw/simd/*.py",
                "hw/parts/*.py", "hw/parts/schemes/*.py"),
               ("tb/unit/array", "tb/unit/bus", "tb/unit/control", "tb/unit/memory", "tb/unit/simd", "tb/system")),
    "support": Room(("support/*.py",), ("tb/unit/support", "tb/unit/project/test_outputs.py",
                                        "tb/unit/project/test_streams.py")),
    "boards": Room(("boards/shell/*.py", "boards/*.py"), ("tb/unit/boards", "tb/unit/project/test_boards.py")),
    "report": Room(("report/*.py",), ("tb/unit/report",)),
    "explore": Room(("explore/*.py",), ("tb/unit/explore",)),
    "simulate": Room(("simulate/*.py",), ("tb/unit/simulate", "tb/unit/driver/test_simulated.py",
                                          "tb/unit/project/test_verilog_coverage.py", "tb/unit/runtime", "tb/system")),
    "cli": Room(("cli/*.py",), ("tb/unit/project", "tb/unit/runtime")),
}


@dataclass(frozen=True)
class Drawn(Break):
    """A break at one place of a file: the characters from ``begin`` on, as far as ``old`` is long.

    ``test``: those of the room, which must find the break, with blanks between."""

    begin: int
    room: str

    @property
    def tests(self) -> list[str]:
        """Return the tests that must find the break."""
        return self.test.split()

    def applied(self, text: str) -> str:
        """Return the broken file. Raise ValueError if the text is not at its place."""
        end = self.begin + len(self.old)
        if text[self.begin:end] != self.old:
            raise ValueError(f"break {self.id}: {self.old!r} is not at {self.begin} of {self.file}")
        return text[:self.begin] + self.new + text[end:]


class Places:
    """The characters of a file by line and column, as Python's parser tells them (columns count bytes)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Return the character at a line (from 1) and a column of bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node begins and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def between(self, left: ast.expr, right: ast.expr) -> tuple[int, str]:
        """Return the operator between two operands, without blanks and brackets around it, and where it begins."""
        begin, end = self.span(left)[1], self.span(right)[0]
        raw = self.text[begin:end]
        stripped = raw.strip(" ()\n\t")
        return begin + raw.index(stripped), stripped


Change = tuple[int, str, str]
"""A place in the text, what stands there, and what it becomes."""


def is_words(node: ast.AST) -> bool:
    """Return whether a node holds words for people or types alone: no break of it changes what a program does."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If):  # if TYPE_CHECKING, if __name__ == "__main__"
        return isinstance(node.test, ast.Name) or "__name__" in ast.unparse(node.test)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in SPOKEN
    return isinstance(node, ast.JoinedStr)


def behaviour(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree that decide what a program does, in order of the text."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not is_words(node):
                yield node
                yield from behaviour(node)


def changes_of(node: ast.AST, places: Places) -> Iterator[Change]:
    """Yield the changes that are made to one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        begin, old = places.between(node.left, node.comparators[0])
        yield begin, old, COMPARED[type(node.ops[0])]
    elif isinstance(node, ast.BinOp):
        if type(node.op) in COMPUTED:
            begin, old = places.between(node.left, node.right)
            yield begin, old, COMPUTED[type(node.op)]
    elif isinstance(node, ast.BoolOp):
        begin, old = places.between(node.values[0], node.values[1])
        if len(node.values) == 2:
            yield begin, old, "or" if isinstance(node.op, ast.And) else "and"
    elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1 << 40:
        begin, end = places.span(node)
        yield begin, places.text[begin:end], str(node.value + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        begin, end = places.span(node)
        yield begin, places.text[begin:end], f"({places.text[slice(*places.span(node.operand))]})"
    elif isinstance(node, ast.Call):
        yield from changes_of_call(node, places)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        begin, end = places.span(node.test)
        yield begin, places.text[begin:end], f"(not ({places.text[begin:end]}))"
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        begin, end = places.span(node)
        yield begin, places.text[begin:end], "pass"


def changes_of_call(node: ast.Call, places: Places) -> Iterator[Change]:
    """Yield the changes of a call: its opposite, or its first two operands swapped."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in NAMED:
        end = places.span(node.func)[1]
        yield end - len(name), name, NAMED[name]
    elif len(node.args) == 2 and not node.keywords and not any(isinstance(each, ast.Starred) for each in node.args):
        first, second = (slice(*places.span(each)) for each in node.args)
        if places.text[first] != places.text[second]:
            old = places.text[first.start:second.stop]
            between = places.text[first.stop:second.start]
            yield first.start, old, places.text[second] + between + places.text[first]


def changes(text: str) -> list[Change]:
    """Return every change that can be drawn in a file."""
    places = Places(text)
    return [change for node in behaviour(ast.parse(text)) for change in changes_of(node, places)]


def is_break(text: str, change: Change) -> bool:
    """Return whether the changed file is still Python, and another program."""
    begin, old, new = change
    try:
        return ast.dump(ast.parse(text[:begin] + new + text[begin + len(old):])) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def draw(room: str, count: int, seed: int) -> list[Drawn]:
    """Return breaks of a room, drawn without repetition; the same for a seed and the same sources."""
    chance = random.Random(f"{room} {seed}")
    files = sorted(path for pattern in ROOMS[room].sources for path in ROOT.glob(pattern))
    texts = {path: path.read_text() for path in files}
    sizes = [len(text.splitlines()) for text in texts.values()]
    drawn: dict[str, Drawn] = {}
    known = cache(lambda path: changes(texts[path]))
    for _ in range(100 * count):
        path = chance.choices(files, sizes)[0]
        if known(path):
            change = chance.choice(known(path))
            if is_break(texts[path], change):
                entry = entry_of(path, texts[path], change, room)
                drawn.setdefault(entry.id, entry)
        if len(drawn) == count:
            break
    return list(drawn.values())


def entry_of(path: Path, text: str, change: Change, room: str) -> Drawn:
    """Return a change as a break, called by its file, line and column."""
    begin, old, new = change
    file, line, column = path.relative_to(ROOT), text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin)
    meaning = " ".join(f"{old} -> {new}".split())
    return Drawn(f"{file}:{line}:{column}:{new[:8]}", str(file), old, new, meaning, " ".join(ROOMS[room].tests),
                 begin, room)
