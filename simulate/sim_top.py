# SPDX-License-Identifier: Apache-2.0
"""The simulation's top module `weft_sim`, as text: the machine, its three memories, and the signals of tests.

``weft_sim`` has one port, `clk`, which the simulator's main loop drives (sv/main.cpp). All other signals that a test
sets or reads are plain variables listed in ``WRITABLE`` and ``READABLE``. ``public_vlt`` makes only these visible to
cocotb, because every visible signal costs simulation speed."""

from collections.abc import Iterable
from dataclasses import dataclass

from weft.hw.contract.units import UNITS
from weft.simulate.trace import Kind

__all__ = ["MEMORIES", "READABLE", "WRITABLE", "public_vlt", "weft_sim"]

MEMORIES = ("dram0", "dram1", "program")
"""The names of the memories: of their AXI port m_axi_<name>, their plus-argument +<name>=<file>, and signals.

If both DRAM windows share the port m_axi_dram, each still has a file, and addresses, of its own: AxUSER says which one
is meant, so that windows never overlap, wherever a program puts them. Errors are set for each, all else by the settings
of dram0, whose counters are the port's."""

SHARED_PORT = "dram"
"""The port behind which both DRAM windows lie, on a machine with ``dram_ports`` "shared"."""
CORES_PORT = "memory{}"
"""The ports of several cores, behind each of which all three memories lie; AxUSER tells which is meant.

They all behave by the settings of dram0, whose counts of beats are those of all ports together."""

_ADDRESS = {"id": 1, "addr": 0, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4}
_SETTINGS = {
    "read_latency": 16, "write_latency": 16, "jitter": 16,
    "stall_ar": 8, "stall_r": 8, "stall_aw": 8, "stall_w": 8, "stall_b": 8,
    "error_lo": 64, "error_hi": 64, "error_response": 2,
}  # fmt: skip
_ERRORS = ("error_lo", "error_hi")
_COUNTERS = {"read_beats": 64, "write_beats": 64, "first_cycle": 64, "last_cycle": 64}
_AXIL_IN = {
    "awaddr": 17, "awprot": 3, "awvalid": 1, "wdata": 32, "wstrb": 4, "wvalid": 1, "bready": 1,
    "araddr": 17, "arprot": 3, "arvalid": 1, "rready": 1,
}  # fmt: skip
_AXIL_OUT = {"awready": 1, "wready": 1, "bresp": 2, "bvalid": 1, "arready": 1, "rdata": 32, "rresp": 2, "rvalid": 1}

WRITABLE: dict[str, int] = {
    "rst": 1, "seed": 64, "cycle_limit": 64, "sample_tready": 1,
    **{f"{memory}_{name}": width for memory in MEMORIES for name, width in _SETTINGS.items()},
    **{f"s_axil_{name}": width for name, width in _AXIL_IN.items()},
}  # fmt: skip
"""The variables that a test sets, with their widths.

All start as 0 except `rst` and `sample_tready`, which start as 1."""

_REGISTERED = [name for name in WRITABLE if not name.startswith("s_axil_")]
"""The variables that the design sees as `<name>_q`, one clock edge later.

Verilator evaluates everything combinational behind a writable variable at every edge of the clock, and reset alone
reaches all of the machine. The control port's handshake would not survive a delay, and little is behind it."""

READABLE: dict[str, int] = {
    "cycle": 64, "interrupt": 1, "sample_words": 64,
    **{f"{memory}_{name}": width for memory in MEMORIES for name, width in _COUNTERS.items()},
    **{f"s_axil_{name}": width for name, width in _AXIL_OUT.items()},
}  # fmt: skip
"""The variables that a test reads, with their widths. `cycle` counts clock edges since rst was last high."""

_TRACE = {"begin": 1, "cycle": 64, "issued": len(UNITS), "program_counter": 32, "started": len(UNITS),
          "finished": len(UNITS)}  # fmt: skip


@dataclass(frozen=True)
class _Wire:
    """A wire of an AXI4 port."""

    name: str
    width: int
    from_master: bool


@dataclass(frozen=True)
class _Port:
    """A port of the machine, m_axi_<name>, and what lies behind it.

    ``windows``: names of memories; ``number``: of the first of them in dram.cpp; ``counted``: the name for its
    counts."""

    name: str
    data_width: int
    address_width: int
    windows: tuple[str, ...]
    number: int
    counted: str

    @property
    def writes(self) -> bool:
        """Whether the port has write channels."""
        return self.windows != ("program",)

    @property
    def user(self) -> int:
        """The bits of AxUSER."""
        return len(self.windows) - 1

    def wires(self) -> list[_Wire]:
        """Return the wires of the port."""
        return _channels(self.data_width, self.address_width, self.writes, self.user)


def _channels(data_width: int, address_width: int, write: bool, user: int = 0) -> list[_Wire]:
    """Return the wires of an AXI4 port, without its prefix. ``user``: bits of AxUSER."""

    def address(channel: str) -> list[_Wire]:
        fields = {**_ADDRESS, "addr": address_width, **({"user": user} if user else {}), "valid": 1}
        wires = [_Wire(channel + name, width, True) for name, width in fields.items()]
        return [*wires, _Wire(channel + "ready", 1, False)]

    read = [
        *address("ar"), _Wire("rid", 1, False), _Wire("rdata", data_width, False), _Wire("rresp", 2, False),
        _Wire("rlast", 1, False), _Wire("rvalid", 1, False), _Wire("rready", 1, True),
    ]  # fmt: skip
    if not write:
        return read
    return [
        *read, *address("aw"), _Wire("wdata", data_width, True), _Wire("wstrb", data_width // 8, True),
        _Wire("wlast", 1, True), _Wire("wvalid", 1, True), _Wire("wready", 1, False),
        _Wire("bid", 1, False), _Wire("bresp", 2, False), _Wire("bvalid", 1, False), _Wire("bready", 1, True),
    ]  # fmt: skip


def _declare(kind: str, width: int, name: str, start: str = "") -> str:
    """Return the declaration of a variable or wire."""
    return f"  {kind} [{width - 1}:0] {name}{start};"


_PACED = {"araddr": 32, "awaddr": 32, "arlen": 8, "awlen": 8, "arsize": 3, "awsize": 3, "arburst": 2, "awburst": 2,
          **dict.fromkeys(("arvalid", "awvalid", "wvalid", "wlast", "rready", "bready", "arready", "awready", "wready",
                           "rvalid", "bvalid"), 1)}
"""The signals between a port and a board's memory controller, with their widths."""


def _controller(names: Iterable[str]) -> list[str]:
    """Return the lines with a board's memory controller, behind the machine's ports."""
    pins = [f".m_axi_{name}_{wire}(c_{name}_{wire})" for name in names for wire in _PACED]
    return ["  dram_controller dram_controller (.sys_clk(clk), .sys_rst(rst_q),", "    " + ",\n    ".join(pins), "  );"]


def _memory(port: _Port, paced: bool) -> list[str]:
    """Return the lines with the wires of a port and the memories at its end.

    ``paced``: a board's controller decides when they answer."""
    name, first, wires = port.name, port.windows[0], port.wires()
    lines = [_declare("wire", wire.width, f"m_axi_{name}_{wire.name}") for wire in wires]
    connections = [".clk(clk)", ".rst(rst_q)", ".cycle(cycle)"]
    if paced:
        lines += [_declare("wire", width, f"c_{name}_{wire}") for wire, width in _PACED.items()]
        connections += [f".c_{wire}(c_{name}_{wire})" for wire in _PACED]
    else:
        connections.append(".seed(seed_q)")
        connections += [f".{setting}({first}_{setting}_q)" for setting in _SETTINGS]
        connections += [f".{place}_{setting}({memory}_{setting}_q)" for place, memory in _LATER_WINDOWS
                        for setting in _ERRORS]
    connections += [f".{counter}({port.counted}_{counter})" for counter in _COUNTERS]
    connections += [f".s_axi_{wire.name}(m_axi_{name}_{wire.name})" for wire in wires]
    # what the machine's port lacks rests: a program's write channels, AxUSER
    unused = {wire.name for wire in _channels(port.data_width, port.address_width, True, 1) if wire.from_master}
    connections += [f".s_axi_{wire}('0)" for wire in sorted(unused - {wire.name for wire in wires})]
    parameters = (f".DATA_WIDTH({port.data_width}), .ADDRESS_WIDTH({port.address_width}), .PORT({port.number}), "
                  f".NAME(\"{first}\")")
    if len(port.windows) > 1:
        parameters += f", .WINDOWS({len(port.windows)})"
        parameters += "".join(f', .{place.upper()}("{memory}")' for (place, _), memory in
                              zip(_LATER_WINDOWS, port.windows[1:], strict=False))
    module = "axi_paced" if paced else "axi_dram"
    lines += [f"  {module} #({parameters}) memory_{name} (", "    " + ",\n    ".join(connections), "  );"]
    return lines


_LATER_WINDOWS = (("second", "dram1"), ("third", "program"))
"""axi_dram.sv's names of the windows after the first, and their memories."""


def _ports(axi_data_width: int, address_width: int, stream_width: int, shared_dram: bool,
           memory_ports: int) -> list[_Port]:
    """Return the machine's ports. ``memory_ports``: those of several cores, 0 for a single one."""
    if memory_ports:
        names = [CORES_PORT.format(number) for number in range(memory_ports)]
        return [_Port(name, axi_data_width, address_width, MEMORIES, len(MEMORIES) * number, name)
                for number, name in enumerate(names)]
    program = _Port("program", stream_width, address_width, ("program",), 2, "program")
    if shared_dram:
        return [_Port(SHARED_PORT, axi_data_width, address_width, ("dram0", "dram1"), 0, "dram0"), program]
    return [*(_Port(name, axi_data_width, address_width, (name,), number, name)
              for number, name in enumerate(MEMORIES[:2])), program]


def _sums(ports: list[_Port]) -> list[str]:
    """Return the lines with counters of several cores' ports, summed as dram0's; cycles are those of the first port."""
    lines = [_declare("wire", width, f"{port.counted}_{counter}") for port in ports
             for counter, width in _COUNTERS.items()]
    for counter in _COUNTERS:
        counted = [f"{port.counted}_{counter}" for port in ports]
        total = " + ".join(counted) if counter.endswith("beats") else counted[0]
        lines.append(f"  assign dram0_{counter} = {total};")
    return lines


def weft_sim(*, axi_data_width: int, axi_address_width: int, stream_width: int, shared_dram: bool = False,
             paced: bool = False, cores: int = 1, memory_ports: int = 1) -> str:
    """Return SystemVerilog of `weft_sim` around `weft_top`, for an architecture's widths, DRAM ports and cores.

    * Memories: axi_dram `dram0`, `dram1` (or one for both) and, read only, `program`; of several cores all three behind
    each memory port. See sv/axi_dram.sv for their settings.
    * ``paced``: these are axi_paced (sv/axi_paced.sv) on a board's memory controller, a module `dram_controller`; their
    settings then mean nothing. Only for a single core.
    * `cycle_limit`: when `cycle` reaches it, and it is not 0, the simulation ends with $fatal.
    * Samples: with +samples=<file>, each word of m_axis_sample (core 0's) is appended there as eight bytes,
    little-endian, without marks of packets. `sample_words` counts them in any case.
    * Operations: with +operations=<file>, the events of the cores' trace ports are written there (trace.cpp).
    * The instruction stream is tied off: programs come from memory."""
    ports = _ports(axi_data_width, axi_address_width, stream_width, shared_dram, memory_ports if cores > 1 else 0)
    names = [port.name for port in ports]
    memories = [line for port in ports for line in _memory(port, paced)]
    if paced:
        memories += _controller(names)
    if cores > 1:
        memories = [*_sums(ports), *memories]
    axi = [f"m_axi_{port.name}_{wire.name}" for port in ports for wire in port.wires()]
    axil = [f"s_axil_{name}" for name in (*_AXIL_IN, *_AXIL_OUT)]
    same_name = ["clk", "interrupt", *axi, *axil]
    starts = {"rst": " = 1", "sample_tready": " = 1"}
    suffixes = [""] if cores == 1 else [str(core) for core in range(cores)]
    return "\n".join(
        [
            "module weft_sim(input clk);",
            *(_declare("logic", width, name, starts.get(name, " = 0")) for name, width in WRITABLE.items()),
            *(_declare("logic", width, name) for name, width in READABLE.items()),
            *(_declare("logic", WRITABLE[name], f"{name}_q", starts.get(name, " = 0")) for name in _REGISTERED),
            *(f"  always @(posedge clk) {name}_q <= {name};" for name in _REGISTERED),
            *memories,
            "  wire [63:0] sample_tdata;",
            "  wire sample_tvalid, sample_tlast;",
            *(_declare("wire", width, f"trace{suffix}_{name}") for suffix in suffixes
              for name, width in _TRACE.items()),
            "  weft_top weft_top (",
            "    .rst(rst_q),\n" + "".join(f"    .{name}({name}),\n" for name in same_name)
            + ",\n".join(_core(suffix, first=suffix == suffixes[0]) for suffix in suffixes),
            "  );",
            _BEHAVIOUR,
            _RECORDER,
            *(_recorded(suffix, core) for core, suffix in enumerate(suffixes)),
            "endmodule",
            "",
        ]
    )


def _core(suffix: str, *, first: bool) -> str:
    """Return the connections of one core's own ports; samples are taken of the first."""
    stream, sample = f"s_axis_instruction{suffix}", f"m_axis_sample{suffix}"
    heard = (f"    .{sample}_tdata(sample_tdata), .{sample}_tlast(sample_tlast),\n"
             f"    .{sample}_tvalid(sample_tvalid), .{sample}_tready(sample_tready_q),\n    ")
    unheard = (f"    .{sample}_tdata(), .{sample}_tlast(), .{sample}_tvalid(), .{sample}_tready(1'b1),\n    ")
    return (f"    .{stream}_tdata('0), .{stream}_tkeep('0), .{stream}_tlast(1'b0),\n"
            f"    .{stream}_tvalid(1'b0), .{stream}_tready(),\n" + (heard if first else unheard)
            + ",\n    ".join(f".trace{suffix}_{name}(trace{suffix}_{name})" for name in _TRACE))


_BEHAVIOUR = """\
  string sample_path;
  int sample_file = 0;
  initial if ($value$plusargs("samples=%s", sample_path)) begin
    sample_file = $fopen(sample_path, "wb");
    if (sample_file == 0) $fatal(1, "cannot write samples to '%s'", sample_path);
  end
  final if (sample_file != 0) $fclose(sample_file);

  always @(posedge clk) begin
    if (rst_q) begin
      cycle <= 0;
      sample_words <= 0;
    end else begin
      cycle <= cycle + 1;
      if (cycle_limit_q != 0 && cycle == cycle_limit_q)
        $fatal(1, "watchdog: no end after %0d cycles", cycle_limit_q);
      if (sample_tvalid & sample_tready_q) begin
        sample_words <= sample_words + 1;
        if (sample_file != 0)
          for (int i = 0; i < 8; i++) $fwrite(sample_file, "%c", sample_tdata[8*i +: 8]);
      end
    end
  end"""


_RECORDER = """\
  import "DPI-C" function int trace_open(input string path);
  import "DPI-C" function void trace_event(
    input longint unsigned cycle, input int kind, input int unit, input int unsigned program_counter, input int core);
  import "DPI-C" function void trace_close();

  string operations_path;
  bit recording = 0;
  initial if ($value$plusargs("operations=%s", operations_path)) begin
    if (trace_open(operations_path) == 0) $fatal(1, "cannot write operations to '%s'", operations_path);
    recording = 1;
  end
  final if (recording) trace_close();"""


def _recorded(suffix: str, core: int) -> str:
    """Return the lines that record the events of a core's trace port."""
    trace = f"trace{suffix}"
    return f"""\
  always @(posedge clk) if (recording & ~rst_q) begin
    if ({trace}_begin) trace_event({trace}_cycle, {Kind.BEGIN}, 0, 0, {core});
    if (({trace}_issued | {trace}_started | {trace}_finished) != 0)
      for (int unit = 0; unit < {len(UNITS)}; unit++) begin
        if ({trace}_issued[unit]) trace_event({trace}_cycle, {Kind.ISSUED}, unit, {trace}_program_counter, {core});
        if ({trace}_started[unit]) trace_event({trace}_cycle, {Kind.STARTED}, unit, 0, {core});
        if ({trace}_finished[unit]) trace_event({trace}_cycle, {Kind.FINISHED}, unit, 0, {core});
      end
  end"""


def public_vlt() -> str:
    """Return the body of the Verilator control file for ``weft_sim``."""
    writable = [f'public_flat_rw -module "weft_sim" -var "{name}" @(posedge clk)' for name in WRITABLE]
    readable = [f'public_flat_rd -module "weft_sim" -var "{name}"' for name in ("clk", *READABLE)]
    return "\n".join([*writable, *readable, ""])
