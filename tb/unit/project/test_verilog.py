# SPDX-License-Identifier: Apache-2.0
"""What is shortened in the Verilog that yosys writes means the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.back import verilog

from weft.hw.contract.arch import Arch
from weft.hw.control.supervisor import Supervisor
from weft.hw.flow.synthesis import run_yosys
from weft.hw.flow.verilog import collapse_repetitions, collapse_zero_memories, fold_registers, shorten
from weft.hw.simd.sequencer import Sequencer
from weft.hw.system import with_ports
from weft.simulate import toolchain
from weft.support.errors import WeftError


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
        "  initial begin\n    begin : zero_words_0 integer i; for (i = 0; i < 2; i = i + 1) m[i] = 8'h0; end\n"
        "    m[2] = 8'h01;\n  end\n")


REGISTER = r"""module m (clk, enable, d, q);
  reg \$auto$1  = 0;
  reg [1:0] \$2 ;
  reg [1:0] \kept.q  = 2'h0;
  always @(posedge clk)
    \kept.q  <= \$2 ;
  always @* begin
    if (\$auto$1 ) begin end
    \$2  = \kept.q ;
    if (enable) begin
      \$2 [1] = d;
    end
  end
  assign q = \kept.q ;
endmodule
"""


def test_a_register_is_written_where_it_is_clocked() -> None:
    assert fold_registers(REGISTER) == r"""module m (clk, enable, d, q);
  reg \$auto$1  = 0;
  reg [1:0] \kept.q  = 2'h0;
  always @(posedge clk) begin
    if (enable) begin
      \kept.q [1] <= d;
    end
  end
  assign q = \kept.q ;
endmodule
"""


def test_a_next_value_that_is_read_elsewhere_stays() -> None:
    text = REGISTER.replace(r"assign q = \kept.q ", r"assign q = \$2 ")
    assert fold_registers(text) == text


PROOF = """
{both}
design -copy-from long -as long long
design -copy-from short -as short short
equiv_make long short equiv
hierarchy -top equiv
opt_clean
equiv_struct
equiv_simple
equiv_status -assert
"""
READ = """
read_verilog {name}.v
hierarchy -top top
proc
flatten
memory_collect
memory_map
setattr -unset init w:*
opt_clean
rename top {name}
design -stash {name}
"""


def prove_equal(long: str, short: str, folder: Path) -> None:
    """Both read as plain Verilog; every register has the same next value, every output the same value."""
    for name, text in {"long": long, "short": short}.items():
        (folder / f"{name}.v").write_text(text)
    both = "".join(READ.format(name=name) for name in ("long", "short"))
    run_yosys(PROOF.format(both=both), folder, "proof")


@pytest.mark.wide_cases("Sequencer")
@pytest.mark.slow
@pytest.mark.parametrize("block", [Supervisor, Sequencer])
def test_a_block_shortened_is_the_same(block: type, tmp_path: Path) -> None:
    toolchain.setup()
    text = verilog.convert(block(Arch.load("tiny")), name="top", emit_src=False)
    shorter = shorten(text)
    assert shorter.count("always @*") < text.count("always @*")
    prove_equal(text, shorter, tmp_path)
    with pytest.raises(WeftError, match="unproven"):
        prove_equal(text, shorter.replace("<= 1'h1;", "<= 1'h0;", 1), tmp_path)


@pytest.mark.long
def test_a_machine_shortened_is_the_same(tmp_path: Path) -> None:
    toolchain.setup()
    module, ports = with_ports(Arch.load("tiny"))
    text = verilog.convert(module, name="top", ports=ports, emit_src=False)
    prove_equal(text, shorten(text), tmp_path)
