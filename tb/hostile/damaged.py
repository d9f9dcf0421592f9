# SPDX-License-Identifier: Apache-2.0
"""Good files of every kind, damaged by rule: cut at every sixteenth, bits flipped, and one value of many replaced.

A value is a leaf of a JSON file or a field of an ONNX file. Which one, and by what, a seed draws."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from weft.hw.contract.arch import Arch
from weft.tb.hostile.case import COMPILE, ESTIMATE, FORGED, REPORT, RUN, Case, Recipe, copy_good, quick

SIXTEENTHS = 16
FLIPS, VALUES = 8, 40
"""The cases of a kind of file with flipped bits, and those with another value, for each command."""
DEBUG = ["debug", "net.tmodel", "-x", "run", "-x", "local 0 4"]
INSPECT = ["inspect", "net.onnx"]
SCHEDULE = ["schedule", "net.onnx", "-a", "tiny", "-o", "s.json"]
TAKE = [*COMPILE, "--schedule", "net.json"]
FILES: dict[str, list[list[str]]] = {
    "net.onnx": [INSPECT, COMPILE, SCHEDULE], "net.tmodel": [RUN, ESTIMATE, [*REPORT, "-o", "p.html"], DEBUG],
    "net.tprog": [RUN, ["disassemble", "net.tprog", "-a", "tiny"]], "net.tdata": [RUN], "x.npz": [RUN],
    "net.json": [TAKE], "my.tarch": [["isa", "-a", "my.tarch"], ["resources", "-a", "my.tarch"]],
}
"""File -> the commands that read it."""
TEXTS = ("net.tmodel", "net.json", "my.tarch")
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 31, 1 << 63, -(1 << 63), 10 ** 400, 0.5, 1e308, float("nan"), float("inf"), "", "\u202ex",
    "\x00", "\ud800", FORGED, "../x", "/etc/passwd", "a" * 100_000, [], {}, [[]], [None], {"": None}, [0] * 100_000)
"""The values that take the place of a leaf in JSON."""
INTEGERS = (-1, 0, 1, 3, 1 << 20, (1 << 31) - 1, (1 << 62), -(1 << 62))
NUMBERS = (0.0, -1.0, 1e38, float("nan"), float("inf"))
WORDS = ("", "\u202ex", FORGED, "y", "x", "Loop", "ai.onnx.ml", "../x", "a" * 100_000, "\x00")


# -- bytes -------------------------------------------------------------------------------------------------------------
def _cut(content: bytes, number: int) -> bytes:
    """Return the first sixteenths of a file."""
    return content[:len(content) * number // SIXTEENTHS]


def _flipped(content: bytes, seed: int) -> bytes:
    """Return a file with one to four bits flipped."""
    chance, damaged = random.Random(f"flip {seed}"), bytearray(content)
    for _ in range(chance.randrange(1, 5)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


# -- JSON --------------------------------------------------------------------------------------------------------------
def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (object or list, key) of everything below a value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _other_value(content: bytes, seed: int) -> bytes:
    """Return a JSON file with one value replaced, deleted or doubled."""
    chance, values = random.Random(f"value {seed}"), json.loads(content)
    holder, key = chance.choice(list(_places(values)))
    if chance.random() < 0.1:
        del holder[key]
    elif chance.random() < 0.1:
        if isinstance(holder, list):
            holder.insert(key, holder[key])
        else:
            holder[f"{key} "] = holder[key]
    else:
        holder[key] = chance.choice(ODD)
    return json.dumps(values).encode(errors="surrogatepass")


# -- ONNX --------------------------------------------------------------------------------------------------------------
def _messages(message: Message) -> Iterator[Message]:
    """Yield a message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from _messages(each)


def _odd(field: FieldDescriptor, chance: random.Random) -> Any:
    """Return a value for a field that is no message."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        word = chance.choice(WORDS)
        return word.encode() if field.type == FieldDescriptor.TYPE_BYTES else word
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return chance.choice(NUMBERS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return chance.choice([value.number for value in field.enum_type.values])
    bits = 31 if field.cpp_type == FieldDescriptor.CPPTYPE_INT32 else 63
    return max(-(1 << bits), min(chance.choice(INTEGERS), (1 << bits) - 1))


def _other_field(content: bytes, seed: int) -> bytes:
    """Return an ONNX file with one field, also one that it does not have, cleared, doubled or replaced."""
    chance, model = random.Random(f"field {seed}"), onnx.load_from_string(content)
    message = chance.choice(list(_messages(model)))
    field = chance.choice(message.DESCRIPTOR.fields)
    if chance.random() < 0.2:
        message.ClearField(field.name)
    elif field.message_type is not None:
        child = getattr(message, field.name)
        if field.is_repeated:
            child.add().CopyFrom(child[0] if len(child) > 1 else field.message_type._concrete_class())
        else:
            child.SetInParent()
    elif field.is_repeated:
        child = getattr(message, field.name)
        child.extend([_odd(field, chance) for _ in range(chance.choice((1, 2, 40)))])
    else:
        setattr(message, field.name, _odd(field, chance))
    return model.SerializeToString()


# -- cases -------------------------------------------------------------------------------------------------------------
def _damaged(file: str, damage: partial[bytes] | Any, number: int, command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        copy_good(folder)
        (folder / "my.tarch").write_text(json.dumps(Arch.load("tiny").to_dict()))
        (folder / file).write_bytes(damage((folder / file).read_bytes(), number))
        return command

    return recipe


def cases() -> list[Case]:
    found = []
    for file, commands in FILES.items():
        rules = [("cut", _cut, SIXTEENTHS), ("flipped", _flipped, FLIPS)]
        rules += [("other value", _other_value, VALUES)] if file in TEXTS else []
        rules += [("other field", _other_field, VALUES)] if file == "net.onnx" else []
        found += [Case(f"{file} {name} {number} in {command[0]}", "damaged", _damaged(file, damage, number, command),
                       code=None)
                  for name, damage, count in rules for command in commands for number in range(count)]
    return quick(found, *(f"net.tmodel other value {seed} in run" for seed in range(0, VALUES, 10)),
                 *(f"net.onnx other field {seed} in compile" for seed in range(0, VALUES, 10)),
                 "net.tprog cut 5 in run", "x.npz cut 15 in run", "net.json cut 8 in compile")
