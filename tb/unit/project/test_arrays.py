# SPDX-License-Identifier: Apache-2.0
"""Reading of numpy files: what is asked for, nothing else, and never more than the file can hold."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from weft.runtime import arrays
from weft.runtime.arrays import ARRAYS, read_arrays, write_arrays
from weft.support.errors import WeftError
from weft.support.files import file_name, split_batch
from weft.support.outputs import replacing

ODD = [np.arange(24).reshape(2, 3, 4), np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), np.arange(5, dtype=">i4"),
       np.float32(3), np.zeros((0, 3)), np.array([True, False]), np.arange(10)[::-2], np.ones((2, 2), np.float16)]


@pytest.mark.parametrize("array", ODD, ids=str)
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_what_numpy_writes(array: np.ndarray, write: object, tmp_path: Path) -> None:
    write(tmp_path / "x.npz", a=array, b=array)  # type: ignore[operator]
    np.save(tmp_path / "x.npy", array)
    found = {**read_arrays(tmp_path / "x.npz", ["a", "b"]), **read_arrays(tmp_path / "x.npy", ["c"])}
    for name in "abc":
        assert found[name].dtype == np.asarray(array).dtype and found[name].flags.writeable
        np.testing.assert_array_equal(found[name], array)


def test_what_we_write(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x.npz", {"file": np.ones(3), "a/b": np.zeros(2)})
    assert read_arrays(tmp_path / "x.npz", ["a/b"])["a/b"].tolist() == [0, 0]


def test_only_what_is_asked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(3), b=np.ones(4))
    read, original = [], arrays._member

    def member(archive: zipfile.ZipFile, name: str, *rest: object) -> np.ndarray:
        read.append(name)
        return original(archive, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(arrays, "_member", member)
    assert list(read_arrays(tmp_path / "x.npz", ["b"])) == ["b"] and read == ["b"]


def bomb(path: Path, size: int) -> None:
    """An array of so many zero bytes, which takes a thousandth of that."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        file = io.BytesIO()
        np.save(file, np.zeros(size, np.uint8))
        archive.writestr("x.npy", file.getvalue())


def test_small_arrays_of_zeros_may_be_compressed_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb(tmp_path / "x.npz", 1 << 20)
    assert read_arrays(tmp_path / "x.npz", ["x"])["x"].size == 1 << 20
    monkeypatch.setattr(arrays, "MOST_FOR_FREE", 1 << 19)
    with pytest.raises(WeftError, match="more than 100 times"):
        read_arrays(tmp_path / "x.npz", ["x"])


def test_arrays_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(100), b=np.ones(100))
    monkeypatch.setattr(arrays, "MOST_BYTES", 1600)
    read_arrays(tmp_path / "x.npz", ["a", "b"])
    monkeypatch.setattr(arrays, "MOST_BYTES", 1599)
    with pytest.raises(WeftError, match="800 bytes: more than 799"):
        read_arrays(tmp_path / "x.npz", ["a", "b"])


# -- names and places --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["net", "Net-2.v1", "größe", "a b", "a" * 200])
def test_good_names(name: str) -> None:
    assert file_name(name, "--name") == name


@pytest.mark.parametrize("name", ["", ".", "..", "../net", "a/b", "/net", ".net", " net", "net ", "a\nb", "\x1b[31m",
                                  "a\0", "\udcff", "a" * 201, "ä" * 101])
def test_bad_names(name: str) -> None:
    with pytest.raises(WeftError, match="way out"):
        file_name(name, "--name")


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(WeftError, match="a pipe or a device"), replacing(tmp_path / "full", ARRAYS):
        pass
    assert (tmp_path / "full").is_symlink() and [path.name for path in tmp_path.iterdir()] == ["full"]


@pytest.mark.parametrize(("given", "shape", "batched", "images"), [
    ((1, 2, 3), (1, 2, 3), True, 1), ((2, 3), (1, 2, 3), True, 1), ((4, 2, 3), (1, 2, 3), True, 4),
    ((4, 1, 2, 3), (1, 2, 3), True, 4), ((2, 3), (2, 3), False, 1), ((4, 2, 3), (2, 3), False, 4),
    ((0, 2, 3), (1, 2, 3), True, None), ((0, 1, 2, 3), (1, 2, 3), True, None), ((0, 2, 3), (2, 3), False, None),
    ((3, 2), (1, 2, 3), True, None), ((4, 3, 2), (1, 2, 3), True, None), ((4, 2, 3), (1, 2, 4), True, None),
    ((4, 2, 2, 3), (1, 2, 3), True, None), ((4, 1, 2, 3), (2, 3), False, None), ((), (1, 2, 3), True, None)])
def test_an_array_is_one_image_or_many(given: tuple[int, ...], shape: tuple[int, ...], batched: bool,
                                       images: int | None) -> None:
    """Of ``images`` with their numbers in order, or refused (None)."""
    array = np.arange(np.prod(given), dtype=np.int64).reshape(given)
    if images is None:
        with pytest.raises(WeftError, match="input x: found shape"):
            split_batch("x", array, shape, batched)
    else:
        found = split_batch("x", array, shape, batched)
        assert found.shape == (images, *shape) and found.ravel().tolist() == array.ravel().tolist()
