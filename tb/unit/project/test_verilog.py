"""What is shortened in the Verilog that yosys writes means the same."""

from __future__ import annotations

import pytest

from weft.hw.verilog import collapse_repetitions, collapse_zero_memories


@pytest.mark.parametrize(("text", "shorter"), [
    ("x = { a[15], a[15], a[15], a };", "x = { {3{a[15]}}, a };"),
    (r"x & { \$1 , \$1 , \$1  };", r"x & { {3{\$1 }} };"),
    (r"{ \a.b [3], \a.b [3], \a.b [3], q }", r"{ {3{\a.b [3]}}, q }"),
    ("{ q, a[3:0], a[3:0], a[3:0], r }", "{ q, {3{a[3:0]}}, r }"),
    ("{ a, a, a, ab }", "{ {3{a}}, ab }"),
    ("{ ba, a, a, a }", "{ ba, {3{a}} }"),
    ("{ 1'h0, 1'h0, 1'h0, 1'h0 }", "{ {4{1'h0}} }"),
])
def test_repetitions_in_a_concatenation(text: str, shorter: str) -> None:
    assert collapse_repetitions(text) == shorter


@pytest.mark.parametrize("text", ["{ a, a, b }", "{ a, b, a }", "{ a, ab, abc }", r"{ \a , \ab , \abc  }"])
def test_nothing_to_collapse(text: str) -> None:
    assert collapse_repetitions(text) == text


def test_zero_words_become_a_loop() -> None:
    text = "  initial begin\n    m[0] = 8'h00;\n    m[1] = 8'h00;\n    m[2] = 8'h01;\n  end\n"
    assert collapse_zero_memories(text) == (
        "  initial begin\n    for (integer i = 0; i < 2; i = i + 1) m[i] = 8'h0;\n    m[2] = 8'h01;\n  end\n")
