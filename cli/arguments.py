# SPDX-License-Identifier: Apache-2.0
"""The arguments of the Python interface: each is checked for its type before anything is done with it."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.runtime.images import given_array, insist_on_names
from weft.support.errors import WeftError, explain, nearest

EXPORTED = "give the file's path, or what onnx.load returns"


def model_or_path(model: object) -> Path | bytes:
    """Return a network's file, or the bytes of an ONNX file. Raise WeftError for anything else."""
    import onnx

    if isinstance(model, str | os.PathLike):
        return path_of(model, "the model's path")
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model)
    if isinstance(model, onnx.ModelProto):
        return model.SerializeToString()
    raise _refuse("the model", model, "a path, the bytes of an ONNX file or an onnx.ModelProto", EXPORTED)


def path_of(path: object, what: str) -> Path:
    """Return a path. Raise WeftError for what is none."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise _refuse(what, path, "a str or a pathlib.Path", "give a path")
    return Path(path)


def machine(arch: object) -> Arch:
    """Return the machine of a preset's name or of a ``.tarch`` file; a machine stays as it is. Raise WeftError."""
    return arch if isinstance(arch, Arch) else Arch.load(path_of(arch, "arch"))


def samples(calibrate: object) -> dict[str, np.ndarray]:
    """Return calibration inputs as arrays by name. Raise WeftError for what is no dict of arrays."""
    insist_on_names(calibrate, "calibrate")
    assert isinstance(calibrate, Mapping)
    for name in calibrate:
        if not isinstance(name, str):
            raise _refuse("a name in calibrate", name, "the name of an input", "name the arrays after the inputs")
    return {name: given_array(f"calibration array {name!r}", value) for name, value in calibrate.items()}


def names_of(chosen: object, known: Sequence[str]) -> list[str]:
    """Return the ``chosen`` outputs, all that are ``known`` where it is None or empty. Raise WeftError for others."""
    if chosen is None:
        return list(known)
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise _refuse("output names", chosen, "a list of names, or None for all", f"for example [{known[0]!r}]")
    wanted = list(chosen) or list(known)
    for name in wanted:
        if name not in known:
            raise WeftError(explain("output", repr(name), ", ".join(map(repr, known)), "name one of them"))
    return wanted


OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: value is None or isinstance(value, str), "a str"),
    "outputs": (lambda value: not isinstance(value, str) and isinstance(value, Sequence)
                and all(isinstance(name, str) for name in value), "a list of names"),
    "shapes": (lambda value: isinstance(value, Mapping) and all(map(_are_sizes, value.values())),
               "a dict of name and sizes, such as {'x': (1, 3, 224, 224)} or {'batch': 1}"),
    "fixed": (lambda value: isinstance(value, Mapping), "a dict of input and value"),
    "dump_dir": (lambda value: value is None or isinstance(value, str | Path), "a str or a pathlib.Path"),
    "progress": (lambda value: value is None or callable(value), "a function of a step's name"),
    "watch": (lambda value: value is None or callable(value), "a function of a step and its products"),
    "input_cycles": (lambda value: isinstance(value, int | float) and 0 <= value < float("inf"), "a number from 0 on"),
}
"""Option of the compiler -> whether it takes a value, and what it takes in words; others are checked there."""


def check_options(options: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise WeftError for an option that is not among the ``known``, and for one of another type than its own."""
    names = list(known)
    for name, value in options.items():
        if name not in names:
            raise WeftError(explain("option of weft.compile", name, ", ".join(names),
                                    nearest(name, names, "leave it out")))
        takes, words = OPTIONS.get(name, (lambda _: True, ""))
        if not takes(value):
            raise WeftError(explain(f"option {name}", repr(value), words, "leave it out, or give one of these"))


def _are_sizes(sizes: Any) -> bool:
    """Tell whether a value is one whole number or several."""
    try:
        return all(isinstance(operator.index(size), int)
                   for size in (sizes if isinstance(sizes, Iterable) and not isinstance(sizes, str) else [sizes]))
    except TypeError:
        return False


def _refuse(what: str, found: object, allowed: str, way_out: str) -> WeftError:
    """Return the error for an argument of another type than what is ``allowed``."""
    return WeftError(explain(what, f"a {type(found).__name__}", allowed, way_out))
