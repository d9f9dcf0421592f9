# SPDX-License-Identifier: Apache-2.0
"""Check a command's output files before it works.

None may be one of its inputs, none may be written twice, and none may be of another kind (``support/outputs.py``)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from weft.support.errors import WeftError, explain
from weft.support.outputs import Kind, check_output


class Output(NamedTuple):
    """The file that an option names, None if it names none; ``kind`` None: its writer checks it."""

    option: str
    path: Path | None
    kind: Kind | None = None


def check_outputs(inputs: Mapping[str, Path | str | None], outputs: Iterable[Output]) -> None:
    """Raise WeftError if an output may not be written.

    ``inputs``: files that are read, by the option or argument that names them."""
    taken = {_identity(Path(path)): name for name, path in inputs.items() if path and os.path.isfile(path)}
    for option, path, kind in outputs:
        if path is None:
            continue
        identity = _identity(path)
        if identity in taken:
            raise WeftError(explain(f"{option} {path}", f"the file that {taken[identity]} names", "a file of its own",
                                    "name another file"))
        if identity is not None:
            taken[identity] = option
        if kind is not None:
            check_output(path, kind)


def _identity(path: Path) -> object:
    """Return a value that is equal for two names of one file, links too; None for a device, which may be reused."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path) if "\0" not in str(path) else str(path)
    return None if stat.S_ISCHR(status.st_mode) else (status.st_dev, status.st_ino)
