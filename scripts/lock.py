# SPDX-License-Identifier: Apache-2.0
"""Write lock.txt: the versions that are installed in this environment.

    python scripts/lock.py

A package of the lock that is not installed here, such as TensorFlow, keeps its version.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from weft.support.packages import DISTRIBUTION

LOCK = Path(__file__).resolve().parents[1] / "lock.txt"
NOT_LOCKED = {DISTRIBUTION, "pip", "setuptools", "wheel"}


def main() -> None:
    """Write lock.txt."""
    lines = LOCK.read_text().splitlines()
    head = [line for line in lines if line.startswith("#")]
    versions = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    versions |= {found.name: found.version for found in metadata.distributions() if found.name not in NOT_LOCKED}
    rows = [f"{name}=={versions[name]}" for name in sorted(versions, key=str.lower)]
    LOCK.write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
