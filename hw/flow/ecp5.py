# SPDX-License-Identifier: Apache-2.0
"""Place and route for the ECP5, and what its synthesis needs beyond yosys."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from amaranth.hdl._ir import PortDirection

from weft.hw.bus.axi import Ports
from weft.hw.flow.nextpnr import run as nextpnr_run
from weft.hw.flow.spread import spread
from weft.support.errors import WeftError, explain

NETLIST, SPREAD, DELAYS = "ecp5.json", "spread.json", "delays.sdf"
"""The files of yosys' netlist, of the netlist with empty tables, and of nextpnr's delays."""


@dataclass(frozen=True)
class Chip:
    """A chip: nextpnr's options for it, and the name of its tiles in nextpnr's database."""

    device: str
    tiles: str
    speed: int
    package: str = "CABGA381"


CHIPS = {"LFE5U-45F-6": Chip("--45k", "LFE5U-45F", 6), "LFE5U-85F-6": Chip("--85k", "LFE5U-85F", 6),
         "LFE5U-85F-7": Chip("--85k", "LFE5U-85F", 7), "LFE5U-85F-8": Chip("--85k", "LFE5U-85F", 8),
         "LFE5UM5G-85F-8": Chip("--um5g-85k", "LFE5UM5G-85F", 8, "CABGA554")}
"""The chips by name. Colorlight i9 carries the first, ULX3S the second, ECPIX-5 the last."""
DEFAULT_CHIP = "LFE5UM5G-85F-8"

PLACE_AND_ROUTE = ("--placer", "heap", "--router", "router2", "--tmg-ripup")
"""The options of nextpnr that choose placer and router.

Without ``--tmg-ripup`` router2 appends a sink of a wide net to the branch next to it, however long the way is by then.
The same placement came out at 76.8 MHz without it, and at 94.1 MHz with it."""

# -- multipliers -------------------------------------------------------------------------------------------------------
FACTOR_WIDTH = 18
"""The bits of a DSP block's factors."""
_MULTIPLIER = re.compile(r"^module \\(\S+\.multiplier(?:_\d+)?)$(.*?)^end$", re.MULTILINE | re.DOTALL)
"""The modules of ``hw.array.multiplier`` in RTLIL: name and contents."""
_INPUT = re.compile(r"^ +wire width (\d+) input \d+ +(?:signed )?\\(\S+)$", re.MULTILINE)
_CONSTANT = re.compile(r"^ *connect \\(\S+) (\d+)'([01]+)$", re.MULTILINE)
"""The constant in place of an input that every cell of the module would give the same constant."""


def dsp_multipliers(rtlil: str, width: int) -> str:
    """Return Verilog that makes each multiplier of a design a DSP block, with all of its registers inside.

    It is empty if factors of ``width`` bits are too wide for a block. A multiplier whose inputs have other widths gets
    these. By itself yosys leaves the registers outside. Then the block alone takes 4 ns of a cycle, and as much again
    to reach. Raise WeftError if a pin of a block would have no driver."""
    if width > FACTOR_WIDTH:
        return ""
    pins = ", ".join(f".{pin.upper()}{bit}({pin}[{bit}])" for pin, bits in (("a", 18), ("b", 18), ("p", 36))
                     for bit in range(bits))
    return "".join(_dsp_multiplier(number, name, contents, width, pins)
                   for number, (name, contents) in enumerate(_MULTIPLIER.findall(rtlil)))


def _dsp_multiplier(number: int, name: str, contents: str, width: int, pins: str) -> str:
    """Return the Verilog of one module with a DSP block.

    The module has all inputs of the one that it replaces, among them resets that nothing inside listens to."""
    inputs = {name: int(bits) for bits, name in _INPUT.findall(contents)}
    constants = {found[0]: found[1:] for found in _CONSTANT.findall(contents)}
    folded = {port: int(bits) for port, (bits, _) in constants.items()}
    widths = {side: inputs.get(side, folded.get(side, width)) for side in ("left", "right")} | {"take_right": 1}
    product = widths["left"] + widths["right"]
    drivers = [f"  wire [{bits - 1}:0] {port} = {_folded(port, name, constants)};" for port, bits in widths.items()
               if port not in inputs]
    ports = ", ".join(f"input [{widths.get(port, 1) - 1}:0] \\{port} " for port in inputs)
    a, b = (f"{{{{{FACTOR_WIDTH - bits}{{{side}[{bits - 1}]}}}}, {side}}}" for side, bits in widths.items()
            if side != "take_right")
    return "\n".join(["", f"""(* techmap_celltype = "{name}" *)
module multiplier_{number}({ports}, output [{product - 1}:0] product);""", *drivers, f"""\
  wire [{FACTOR_WIDTH - 1}:0] a = {a}, b = {b};
  wire [{2 * FACTOR_WIDTH - 1}:0] p;
  assign product = p[{product - 1}:0];
  MULT18X18D #(.REG_INPUTA_CLK("CLK0"), .REG_INPUTA_CE("CE0"), .REG_INPUTB_CLK("CLK0"), .REG_INPUTB_CE("CE1"),
               .REG_OUTPUT_CLK("CLK0"), .REG_OUTPUT_CE("CE0"), .GSR("DISABLED"))
    block(.CLK0(clk), .CE0(1'b1), .CE1(take_right), .RST0(1'b0), .SIGNEDA(1'b1), .SIGNEDB(1'b1), .SOURCEA(1'b0),
          .SOURCEB(1'b0), {pins});
endmodule
"""])


def _folded(port: str, module: str, constants: dict[str, tuple[str, str]]) -> str:
    """Return the constant, as Verilog, of an input that Amaranth folded away.

    Raise WeftError if there is none: a pin of the block would float."""
    if port not in constants:
        raise WeftError(explain(f"input {port} of {module}", "neither a port nor a constant", "one of the two",
                                "give the multiplier whole signals or constants"))
    return "{}'b{}".format(*constants[port])


# -- place and route ---------------------------------------------------------------------------------------------------
def harness(ports: Ports, top: str, device: str) -> str:
    """Return Verilog around the machine with five pins in all.

    A shift register drives every input, and another one captures every output."""
    inputs = [(name, len(signal)) for name, (signal, way) in ports.items() if way is PortDirection.Input]
    outputs = [(name, len(signal)) for name, (signal, way) in ports.items() if way is not PortDirection.Input]
    sizes = [sum(width for _, width in side) for side in (inputs, outputs)]
    joins = []
    for side, register in ((inputs, "feed"), (outputs, "outputs")):
        at = 0
        for name, width in side:
            joins.append(f".{name}({register}[{at + width - 1}:{at}])")
            at += width
    return f"""
module {top}(input clk, input rst, input serial_i, input capture, output serial_o);
  reg [{sizes[0] - 1}:0] feed;
  reg [{sizes[1] - 1}:0] taken;
  wire [{sizes[1] - 1}:0] outputs;
  reg reset;
  always @(posedge clk) begin
    reset <= rst;
    feed <= {{feed, serial_i}};
    taken <= capture ? outputs : taken >> 1;
  end
  assign serial_o = taken[0];
  {device} device(.clk(clk), .rst(reset), {", ".join(joins)});
endmodule
"""


def place_and_route(folder: Path, chip: Chip, mhz: int, *, seed: int = 1, route: bool = True,
                    tell: Callable[[str], None] = lambda line: None) -> dict:
    """Place and route the harnessed netlist ``ecp5.json``; return nextpnr's report.

    The report has ``fmax``, ``utilization`` and ``critical_paths``; every delay is left in ``delays.sdf``. Without
    ``route`` delays are nextpnr's guess, and the report has only counts. A clock that cannot be reached is tried for
    a thousand rounds before the router gives up. ``tell`` is called every second with the last line of nextpnr's
    log. Raise WeftError if nextpnr stops."""
    options = ["--freq", str(mhz), "--seed", str(seed), "--lpf-allow-unconstrained", "--sdf", DELAYS]
    return nextpnr(folder, chip, [*options, *([] if route else ["--no-route"])], tell)


def nextpnr(folder: Path, chip: Chip, options: Sequence[str], tell: Callable[[str], None]) -> dict:
    """Run nextpnr on the netlist ``ecp5.json``, spread over the chip, and return its report.

    The report does not count the empty tables. Late paths do not stop nextpnr. Raise WeftError if it stops."""
    tell("empty tables")
    empty = spread(folder / NETLIST, folder / SPREAD, chip.tiles)
    found = nextpnr_run(folder, "ecp5", [
        chip.device, "--speed", str(chip.speed), "--package", chip.package, "--json", SPREAD,
        "--timing-allow-fail", *PLACE_AND_ROUTE, *options], tell)
    found["utilization"]["TRELLIS_COMB"]["used"] -= empty
    return found


def summary(found: dict) -> str:
    """Return text that tells the clock reached, what was used, and where the longest path runs."""
    lines = [f"{clock}: {values['achieved']:.1f} MHz (asked {values['constraint']:.0f})"
             for clock, values in found["fmax"].items()]
    lines += [f"{cell}: {values['used']} of {values['available']}" for cell, values in found["utilization"].items()
              if values["used"]]
    for critical in found["critical_paths"][:1]:
        lines.append(f"longest path, {critical['from']} to {critical['to']}:")
        lines += [f"  {step['delay']:6.2f} ns  {step['type']:12} {step.get('net') or step['from']['cell']}"
                  for step in critical["path"]]
    return "\n".join(lines)
