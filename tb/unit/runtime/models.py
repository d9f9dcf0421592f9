# SPDX-License-Identifier: Apache-2.0
"""Small compiled models made by hand, without the compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.tmodel.manifest import TModel
from weft.tmodel.ports import ConstFile, Port

TINY = Arch.load("tiny")
SIZE, OUTPUT_BASE = 4, 8
VECTORS = np.arange(SIZE * TINY.array_size, dtype=np.int16).reshape(SIZE, -1) + 1


def echo(folder: Path, *, arch: Arch = TINY, consts: int = 2, name: str = "echo", extra: int = 0,
         value: int = 1) -> TModel:
    """Copies its four vectors at 0 to 8; ``consts`` vectors of ``value`` in DRAM1, ``extra`` NoOps at the end."""
    isa = Isa(arch)
    program = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, SIZE),
               isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, OUTPUT_BASE, SIZE), *[isa.no_op()] * extra]
    return model(folder, arch, program, [np.full((consts, arch.array_size), value)], name)


def model(folder: Path, arch: Arch, program: list[Instruction], consts: list[np.ndarray], name: str = "echo",
          bases: tuple[int, ...] = (0,), consts_to_local: bool = False) -> TModel:
    """Four vectors in at 0, four vectors out at 8; ``consts`` in DRAM1 at ``bases``, a file each."""
    storage = arch.number.storage_dtype
    files = {f"{name}.tdata" if not number else f"{name}{number}.tdata": vectors
             for number, vectors in enumerate(consts)}
    return TModel(
        name=name, folder=folder, arch=arch, program_file=f"{name}.tprog",
        const_files=tuple(ConstFile(file, base, len(files[file])) for file, base in zip(files, bases, strict=True)),
        inputs=(Port("x", 0, SIZE),), outputs=(Port("y", OUTPUT_BASE, SIZE),),
        contents={**{file: vectors.astype(storage).tobytes() for file, vectors in files.items()},
                  f"{name}.tprog": Isa(arch).assemble(program)}, consts_to_local=consts_to_local)
