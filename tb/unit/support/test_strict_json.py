# SPDX-License-Identifier: Apache-2.0
"""JSON of a user: everything that is unclear, huge or made to harm is refused by a message, nothing else is."""

import json
import os
import time
from pathlib import Path

import pytest

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, one_line
from weft.support.strict_json import MOST_DEPTH, MOST_DIGITS, MOST_VALUES, parse_object, read_object


@pytest.mark.parametrize("value", [
    {}, {"a": 1, "b": [1.5, -2, None, True, "é \U0001f600 \n"]}, {"a": {"a": {"a": []}}}, {"n": 10**(MOST_DIGITS - 1)},
])
def test_good_objects_are_what_json_says(value: dict) -> None:
    assert parse_object(json.dumps(value).encode()) == value
    assert parse_object(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_nesting_up_to_the_limit() -> None:
    assert parse_object(nested(MOST_DEPTH).encode())
    with pytest.raises(ValueError, match=f"nested more than {MOST_DEPTH} deep"):
        parse_object(nested(MOST_DEPTH + 1).encode())


@pytest.mark.parametrize(("content", "found"), [
    (nested(100_000), "nested more than"),
    ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "nested more than"),
    ('{"a": 1, "a": 1}', "the key 'a' twice"),
    ('{"x": [{"b": 1, "c": 2, "b": 3}]}', "the key 'b' twice"),
    ('{"a": ' + "9" * 5000 + "}", "an integer of 5000 digits"),
    ('{"a": -' + "9" * MOST_DIGITS + "}", f"an integer of {MOST_DIGITS + 1} digits"),
    ('{"a": 1e999}', "'1e999', which is not finite"),
    ('{"a": NaN}', "NaN, which is no JSON"),
    ('{"a": -Infinity}', "-Infinity, which is no JSON"),
    ('{"a": "\\ud800"}', "a lone surrogate"),
    ('{"\\uDfff": 1}', "a lone surrogate"),
    ("[]", "an array instead of an object"), ("1", "a number instead of"), ("null", "null instead of"),
    ("", "Expecting value"), ('{"a": 1} {}', "Extra data"), ("\ufeff{}", "BOM"),
    ('{"a": [' + "1," * MOST_VALUES + "1]}", f"more than {MOST_VALUES} values"),
], ids=lambda text: str(text)[:24])
def test_what_is_refused(content: str, found: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=found):
        parse_object(content.encode())
    assert time.process_time() - began < 10


def test_pairs_of_surrogates_are_characters() -> None:
    assert parse_object(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        parse_object(b'{"a": "\xff"}')


# -- files -------------------------------------------------------------------------------------------------------------
def refusal(path: Path) -> str:
    with pytest.raises(WeftError) as error:
        read_object(path, "settings", "an object", "write one")
    assert str(error.value).startswith(one_line(f"settings {path}")[:400]) and ": found " in str(error.value)
    assert str(error.value).endswith("; allowed: an object; way out: write one")
    return str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    assert "no such file" in refusal(tmp_path / "absent")
    assert "no regular file" in refusal(tmp_path)
    assert "no regular file" in refusal(tmp_path / "fifo")
    assert "no regular file" in refusal(Path("/dev/zero"))
    assert "symbolic links" in refusal(tmp_path / "loop")
    assert "file name too long" in refusal(tmp_path / ("x" * 5000))
    assert "null byte" in refusal(tmp_path / "a\0b")


def test_file_that_is_too_long(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 34)
    assert "more than" in refusal(tmp_path / "sparse")


# -- architectures -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("change", "found"), [
    (lambda text: text.replace("{", '{"array_size": 4,', 1), "the key 'array_size' twice"),
    (lambda text: text.replace("{", '{"aray_size": 4,', 1), "aray_size: found an unknown key"),
    (lambda text: text.replace("{", '{"lut_count": true,', 1), "lut_count: found True"),
    (lambda text: text.replace("{", '{"lut_count": 1.0,', 1), "lut_count: found 1.0"),
    (lambda text: text.replace("{", '{"mac_rounding": ["once"],', 1), "mac_rounding: found ['once']"),
    (lambda text: text.replace('"FP16BP8"', "[]"), "data_type: found []"),
    (lambda text: text.replace("{", '{"accumulator_width": ' + "9" * 5000 + ",", 1), "an integer of 5000 digits"),
    (lambda text: nested(2000), "nested more than"),
])
def test_architectures_are_read_strictly(tmp_path: Path, change, found: str) -> None:
    values = {key: value for key, value in Arch.load("tiny").to_dict().items()
              if key not in ("lut_count", "accumulator_width", "mac_rounding")}
    path = tmp_path / "my.tarch"
    path.write_text(json.dumps(values))
    assert Arch.load(path) == Arch.load("tiny")
    path.write_text(change(path.read_text()))
    with pytest.raises(WeftError) as error:
        Arch.load(path)
    assert found in str(error.value) and "way out: " in str(error.value)


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + ".tarch", "a\0.tarch", ""], ids=list("1234"))
def test_names_of_architectures_that_no_file_has(name: str) -> None:
    with pytest.raises(WeftError, match="allowed: a preset"):
        Arch.load(name)
