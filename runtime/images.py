# SPDX-License-Identifier: Apache-2.0
"""Split a user's arrays into images, and join results: as real numbers, or as vectors that the machine stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain
from weft.support.files import reason, split_batch
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network
from weft.tmodel.tensors import Tensor

Values = dict[str, np.ndarray]
"""Name -> array in the network's shape."""

Vectors = dict[str, np.ndarray]
"""Input or output -> integers [size, lanes]."""

MOST_IMAGES = 1 << 16
"""The most images in one run: a small file may claim millions, and each is packed and kept in memory."""


def insist_on_names(inputs: object, what: str = "inputs") -> None:
    """Raise WeftError for anything but arrays by the names of a network's inputs; ``what`` says what they are."""
    if not isinstance(inputs, Mapping):
        raise WeftError(explain(what, f"a {type(inputs).__name__}", "a dict of name and array",
                                "give an array for each input by its name"))


def user_images(network: Network, inputs: Mapping[str, np.ndarray], most: int | None = None) -> list[Values]:
    """Return the arrays of each of the first ``most`` images, in the types that the network's parts read.

    Raise WeftError for arrays that do not fit, and for more than MOST_IMAGES images."""
    arrays = _batches(network, inputs, network.signature.inputs)
    return _apart({tensor.name: tensor.given(arrays[tensor.name]) for tensor in network.signature.inputs}, most)


def split_images(network: Network, inputs: Mapping[str, np.ndarray], most: int | None,
                 without: frozenset[str]) -> list[Values]:
    """Return the arrays of each of the first ``most`` images as the user gives them.

    The inputs ``without`` are left out. Raise WeftError as :func:`user_images`."""
    tensors = [tensor for tensor in network.signature.inputs if tensor.name not in without]
    return _apart(_batches(network, inputs, tensors), most)


def _batches(network: Network, inputs: Mapping[str, np.ndarray], tensors: Sequence[Tensor]) -> dict[str, np.ndarray]:
    """Return the user's array of each tensor as [images, ...]."""
    arrays = {}
    for tensor in tensors:
        given, shape = _given(inputs, tensor.name), _shape(network.name, tensor)
        arrays[tensor.name] = split_batch(tensor.name, given, shape, batched=shape[:1] == (1,))
    return arrays


def stored_images(model: TModel, inputs: Mapping[str, np.ndarray], most: int | None) -> tuple[list[Vectors], bool]:
    """Return the vectors of each image, from arrays [size, lanes] or [images, size, lanes].

    The second result tells whether there was an axis that counts images."""
    arrays, many = {}, False
    for port in model.inputs:
        given, shape = _given(inputs, port.name), (port.size, model.arch.array_size)
        many = many or given.ndim == len(shape) + 1
        arrays[port.name] = _stored(port.name, split_batch(port.name, given, shape, batched=False), model.arch)
    return _apart(arrays, most), many


def _given(inputs: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return the user's array of an input. Raise WeftError if it is missing, or lists of different lengths."""
    insist_on_names(inputs)
    if name not in inputs:
        raise WeftError(explain(f"input {name!r}", f"arrays {', '.join(map(repr, inputs)) or 'none'}",
                                "an array for each input", "name the arrays after the network's inputs"))
    return given_array(f"input {name!r}", inputs[name])


def given_array(what: str, value: object) -> np.ndarray:
    """Return a user's value as an array. Raise WeftError, where ``what`` names it, for what is none."""
    try:
        array = np.asarray(value)
    except Exception as error:  # numpy's own, and those of other libraries' arrays
        raise WeftError(explain(what, f"what is no array ({reason(error)})", "an array, or lists of one length",
                                "convert it with numpy")) from None
    if array.dtype.kind == "O" and not array.ndim and value is not None:
        raise WeftError(explain(what, f"a {type(value).__name__}", "an array, or lists of numbers",
                                "convert it with numpy"))
    return array


def _apart(arrays: Mapping[str, np.ndarray], most: int | None) -> list[Values]:
    """Return the arrays of each image, at most ``most``.

    Raise WeftError if inputs have different numbers of images, and if ``most`` is less than 1."""
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} with {count} images" for name, count in counts.items())
        raise WeftError(explain("inputs", found, "the same number of images for all", "cut the longer ones"))
    if most is not None and most < 1:
        raise WeftError(explain("images", f"at most {most}", "1 or more", "leave the number out for all images"))
    count = min(next(iter(counts.values())), MOST_IMAGES + 1 if most is None else most)
    if count > MOST_IMAGES:
        raise WeftError(explain("inputs", f"{max(counts.values())} images", f"at most {MOST_IMAGES} in one run",
                                f"add --images {MOST_IMAGES}, or cut the array"))
    return [{name: array[i] for name, array in arrays.items()} for i in range(count)]


def _shape(model: str, tensor: Tensor) -> tuple[int, ...]:
    """Return a tensor's shape. Raise WeftError if the ``.tmodel`` does not say it."""
    if tensor.shape is None:
        raise WeftError(explain(f"model {model}", "no tensor shapes (made by the original tools)",
                                "fixed-point vectors", "use --raw"))
    return tuple(tensor.shape)


def _stored(name: str, array: np.ndarray, arch: Arch) -> np.ndarray:
    """Return raw input integers as int64. Raise WeftError for other types and for values out of range."""
    number = arch.number
    if array.dtype.kind not in "iu":
        raise WeftError(explain(f"raw input {name}", f"values of type {array.dtype}", "integers",
                                "convert the array, or leave --raw out"))
    if array.min() < number.minimum or array.max() > number.maximum:
        raise WeftError(explain(f"raw input {name}", f"values {array.min()}..{array.max()}",
                                f"{number.minimum}..{number.maximum} ({number.name})", "scale the values"))
    return array.astype(np.int64)


def stored_outputs(model: TModel, images: Sequence[Vectors], many: bool) -> dict[str, np.ndarray]:
    """Return the output vectors: [images, size, lanes] with ``many``, else [size, lanes] of the one image."""
    dtype = np.dtype(f"i{model.arch.number.scalar_bytes}")
    stacked = {port.name: np.stack([image[port.name] for image in images]).astype(dtype) for port in model.outputs}
    return stacked if many else {name: array[0] for name, array in stacked.items()}


def are_counted(network: Network, inputs: Mapping[str, np.ndarray]) -> bool:
    """Tell whether a user's arrays have an axis more than the network's inputs, which counts images."""
    return any(np.ndim(inputs[tensor.name]) > len(tensor.shape) for tensor in network.signature.inputs
               if tensor.shape is not None and tensor.name in inputs)


def together(images: Sequence[Values], counted: bool = False) -> Values:
    """Return every output of all images: joined along a leading 1, else stacked along a new first axis.

    Outputs of a single image stay as they are, but for ``counted`` ones (:func:`are_counted`)."""
    return {name: _together([image[name] for image in images], counted) for name in images[0]}


def _together(arrays: Sequence[np.ndarray], counted: bool) -> np.ndarray:
    """Return one output of all images."""
    if arrays[0].shape[:1] == (1,):
        return np.concatenate(arrays)
    return np.stack(arrays) if counted or len(arrays) > 1 else arrays[0]
