"""A user's arrays and the vectors that a machine is given: one image or many, as real numbers or as they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import WeftError, explain
from weft.runtime.files import split_batch
from weft.runtime.manifest import TModel
from weft.runtime.ports import Port

Vectors = dict[str, np.ndarray]
"""By input or output, integers [size, lanes]."""


MOST_IMAGES = 1 << 16
"""In one run: a small file may claim millions, and each is packed and kept."""


def packed_images(model: TModel, arch: Arch, inputs: Mapping[str, np.ndarray], raw: bool,
                  most: int | None = None) -> tuple[list[Vectors], bool]:
    """The vectors of each of the first ``most`` images; and whether the caller counts images with an axis of its own.

    ``raw``: ``inputs`` are vectors [size, lanes] or [images, size, lanes]. Raises WeftError for arrays that do not fit,
    and for more than MOST_IMAGES.
    """
    arrays, many = {}, False
    for port in model.inputs:
        given = inputs[port.name]
        if raw:
            shape: tuple[int, ...] = (port.size, arch.array_size)
            many = many or given.ndim == len(shape) + 1
            arrays[port.name] = _stored(port.name, split_batch(port.name, given, shape, batched=False), arch)
        else:
            user = _shape(model, port)
            arrays[port.name] = split_batch(port.name, given, user, batched=user[:1] == (1,))
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} with {count} images" for name, count in counts.items())
        raise WeftError(explain("inputs", found, "the same number of images for all", "cut the longer ones"))
    count = min(next(iter(counts.values())), MOST_IMAGES + 1 if most is None else most)
    if count > MOST_IMAGES:
        raise WeftError(explain("inputs", f"{max(counts.values())} images", f"at most {MOST_IMAGES} in one run",
                                f"add --images {MOST_IMAGES}, or cut the array"))
    return [{name: array[i] if raw else model.pack_input(name, array[i]) for name, array in arrays.items()}
            for i in range(count)], many


def _shape(model: TModel, port: Port) -> tuple[int, ...]:
    if port.shape is None:
        raise WeftError(explain(f"model {model.name}", "no tensor shapes (made by the original tools)",
                                "fixed-point vectors", "use --raw"))
    return tuple(port.shape)


def _stored(name: str, array: np.ndarray, arch: Arch) -> np.ndarray:
    number = arch.number
    if array.dtype.kind not in "iu":
        raise WeftError(explain(f"raw input {name}", f"values of type {array.dtype}", "integers",
                                "convert the array, or leave --raw out"))
    if array.min() < number.minimum or array.max() > number.maximum:
        raise WeftError(explain(f"raw input {name}", f"values {array.min()}..{array.max()}",
                                f"{number.minimum}..{number.maximum} ({number.name})", "scale the values"))
    return array.astype(np.int64)


def stored_outputs(model: TModel, images: Sequence[Vectors], many: bool) -> dict[str, np.ndarray]:
    """Vectors as they are: [images, size, lanes] with ``many``, else [size, lanes] of the one image."""
    dtype = np.dtype(f"i{model.arch.number.scalar_bytes}")
    stacked = {port.name: np.stack([image[port.name] for image in images]).astype(dtype) for port in model.outputs}
    return stacked if many else {name: array[0] for name, array in stacked.items()}


def real_outputs(model: TModel, images: Sequence[Vectors]) -> dict[str, np.ndarray]:
    """What the network gives, the host's part included, images along the first axis."""
    results = []
    for image in images:
        tensors = {port.name: model.unpack_output(port.name, image[port.name]) for port in model.outputs}
        results.append(model.run_host(tensors))
    return {name: np.concatenate([np.asarray(result[name]) for result in results]) for name in results[0]}
