# SPDX-License-Identifier: Apache-2.0
"""Call a function's machine code without numba, whose import takes as long as all the work of a small program.

numba compiles the function at its first call in a new cache folder. What it makes is kept as an object file for this
processor. Later calls need only LLVM's linker (llvmlite) and ctypes. The wheel brings files for any processor."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from weft.support.cache import cache_directory

FOLDER = cache_directory("kernels")
PREBUILT = Path(__file__).parent / "prebuilt" / "kernels"
"""Object files that the wheel brings (scripts/wheel.py). A checkout has none."""

ANY_PROCESSOR = "generic", ""
"""The processor and its features for which those are made, as LLVM spells them."""

_CHECKED_BYTES = hashlib.sha256().digest_size


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that native functions of its file call, and kernels below it (a decorator)."""
    function.__dict__["kernel"] = True
    return function


def native(function: Callable[..., Any]) -> Native:
    """Make a function :class:`Native` (a decorator).

    Its constants and kernels are of its own file, for by that file's content its machine code is found."""
    return Native(function)


class Native:
    """A function of integers and C-contiguous numpy arrays that returns an integer or None.

    It writes into arrays that the caller has made, and makes none, so that it needs nothing of numba's. A call returns
    the integer, and 0 for None. Raise TypeError for other arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.entries: dict[str, Callable[..., int]] = {}

    def __call__(self, *arguments: int | np.ndarray) -> int:
        """Call the machine code and return its integer. Raise TypeError for arguments that it does not take."""
        types = ",".join(map(_type, arguments))
        entry = self.entries.get(types)
        if entry is None:
            entry = self.entries[types] = self._linked(types, arguments)
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        if entry(ctypes.addressof(result), ctypes.addressof(error), *_words(arguments)):
            raise RuntimeError(f"{self.function.__name__} failed")
        return result.value

    def _linked(self, types: str, arguments: tuple[int | np.ndarray, ...]) -> Callable[..., int]:
        """Return the function's entry point for arguments of these ``types``, from the cache, the wheel or numba."""
        own, shipped = (self._name(types, processor) for processor in (_processor(), ANY_PROCESSOR))
        content = _read(FOLDER / own) or _read(PREBUILT / shipped) or self._compiled(FOLDER / own, arguments)
        return _entry(content, len(_words(arguments)))

    def _name(self, types: str, processor: tuple[str, str]) -> str:
        """Return the name of the object file for arguments of these ``types``, made of all that it depends on."""
        files = (Path(__file__), Path(self.function.__code__.co_filename))
        contents = (*(file.read_bytes() for file in files), *map(str.encode, (
            types, *processor, platform.machine(), platform.system())))
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in contents))
        return f"{self.function.__name__}-{digest.hexdigest()[:20]}.o"

    def _compiled(self, path: Path, arguments: tuple[int | np.ndarray, ...]) -> bytes:
        """Return symbol and object file of the function, compiled by numba for ``arguments``, and keep them.

        One process compiles; others wait for it."""
        from weft.cycles.jit import alone

        with alone(FOLDER):
            found = _read(path)
            if found is not None:
                return found
            content = _object_of(self.function, arguments)
            _keep(path, content)
            return content


def _type(argument: int | np.ndarray) -> str:
    """Return the type of an argument as text."""
    if isinstance(argument, np.ndarray) and argument.flags.c_contiguous:
        return f"{argument.dtype.descr}{argument.ndim}"
    if isinstance(argument, (int, np.integer)):
        return "integer"
    raise TypeError(f"{type(argument).__name__}, neither an integer nor a C-contiguous array")


def _words(arguments: tuple[int | np.ndarray, ...]) -> list[int]:
    """Return arguments as numba passes them: integers and addresses. An array's first two say who owns it, nobody."""
    found: list[int] = []
    for each in arguments:
        if isinstance(each, np.ndarray):
            found += 0, 0, each.size, each.itemsize, each.ctypes.data, *each.shape, *each.strides
        else:
            found.append(int(each))
    return found


# -- object files ------------------------------------------------------------------------------------------------------
def _read(path: Path) -> bytes | None:
    """Return what :func:`_keep` wrote, or None for a missing or damaged file."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    right = hashlib.sha256(content[_CHECKED_BYTES:]).digest() == content[:_CHECKED_BYTES]
    return content[_CHECKED_BYTES:] if right else None


def _keep(path: Path, content: bytes) -> None:
    """Write ``content`` behind its digest; do without if the file cannot be written."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".new", delete=False) as file:
            file.write(hashlib.sha256(content).digest() + content)
        Path(file.name).replace(path)
    except OSError:
        return


@functools.cache
def _processor() -> tuple[str, str]:
    """Return the name and the features of the processor to compile for: this one, or that of numba's variables."""
    name = os.environ.get("NUMBA_CPU_NAME")
    if name is None:
        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return name, os.environ.get("NUMBA_CPU_FEATURES", "")


@functools.cache
def _target() -> llvm.TargetMachine:
    """Return LLVM's code generator."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = _processor()
    return llvm.Target.from_default_triple().create_target_machine(cpu=name, features=features, opt=3, jit=True)


_ENGINES: list[llvm.ExecutionEngine] = []
"""These engines hold the machine code that was linked."""


def _entry(content: bytes, words: int) -> Callable[..., int]:
    """Return the entry point of a ``content`` of symbol, line break and object file, which takes so many ``words``.

    Before them come the addresses of its result and of its error; it returns 0 if there is none."""
    symbol, _, code = content.partition(b"\n")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    _ENGINES.append(engine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    made = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * words)
    return made(engine.get_function_address(symbol.decode()))


def _object_of(function: Callable[..., Any], arguments: tuple[int | np.ndarray, ...]) -> bytes:
    """Return symbol, line break and object file of a function compiled by numba, with its kernels in it."""
    import numba

    options: Any = {"error_model": "numpy", "no_cfunc_wrapper": True, "no_cpython_wrapper": True, "_nrt": False}
    space = dict(function.__globals__)
    for name, each in function.__globals__.items():
        if isinstance(each, FunctionType) and each.__dict__.get("kernel"):
            space[name] = numba.njit(**options)(FunctionType(each.__code__, space))
    dispatcher = numba.njit(**options)(FunctionType(function.__code__, space))
    types = tuple(numba.types.int64 if isinstance(each, (int, np.integer)) else numba.typeof(each)
                  for each in arguments)
    dispatcher.compile(types)
    made = dispatcher.overloads[types]
    code = _target().emit_object(llvm.parse_assembly(made.library.get_llvm_str()))
    return f"{made.fndesc.llvm_func_name}\n".encode() + code
