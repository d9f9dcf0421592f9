"""The simulation's top module `weft_sim`, as text: the machine, its three memories, and the signals a test touches.

``weft_sim`` has one port, `clk`, which the simulator's main loop drives (sv/main.cpp). Everything else that a test
sets or reads is a plain variable listed in ``WRITABLE`` and ``READABLE``; ``public_vlt`` makes these, and only these,
visible to cocotb, for every visible signal costs simulation speed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from weft.hw.contract.units import UNITS
from weft.simulate.trace import Kind

__all__ = ["MEMORIES", "READABLE", "WRITABLE", "public_vlt", "weft_sim"]

MEMORIES = ("dram0", "dram1", "program")
"""Names of the memories: of their AXI port m_axi_<name>, their plus-argument +<name>=<file> and their signals.

Where both DRAM windows share the port m_axi_dram, each still has a file, and addresses, of its own: AxUSER says which
one is meant, so that windows never overlap, wherever a program puts them. Errors are set for each, all else by the
settings of dram0, whose counters are the port's."""

SHARED_PORT = "dram"
"""The port behind which both DRAM windows lie, on a machine with ``dram_ports`` "shared"."""

_ADDRESS = {"id": 1, "addr": 0, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4}
_SETTINGS = {
    "read_latency": 16, "write_latency": 16, "jitter": 16,
    "stall_ar": 8, "stall_r": 8, "stall_aw": 8, "stall_w": 8, "stall_b": 8,
    "error_lo": 64, "error_hi": 64,
}  # fmt: skip
_ERRORS = ("error_lo", "error_hi")
_COUNTERS = {"read_beats": 64, "write_beats": 64, "first_cycle": 64, "last_cycle": 64}
_AXIL_IN = {
    "awaddr": 12, "awprot": 3, "awvalid": 1, "wdata": 32, "wstrb": 4, "wvalid": 1, "bready": 1,
    "araddr": 12, "arprot": 3, "arvalid": 1, "rready": 1,
}  # fmt: skip
_AXIL_OUT = {"awready": 1, "wready": 1, "bresp": 2, "bvalid": 1, "arready": 1, "rdata": 32, "rresp": 2, "rvalid": 1}

WRITABLE: dict[str, int] = {
    "rst": 1, "seed": 64, "cycle_limit": 64, "sample_tready": 1,
    **{f"{memory}_{name}": width for memory in MEMORIES for name, width in _SETTINGS.items()},
    **{f"s_axil_{name}": width for name, width in _AXIL_IN.items()},
}  # fmt: skip
"""Variables a test sets, with their widths; all start as 0 except `rst` and `sample_tready`, which start as 1."""

_REGISTERED = [name for name in WRITABLE if not name.startswith("s_axil_")]
"""Of these the design sees `<name>_q`, one clock edge later: Verilator evaluates everything combinational behind a
writable variable at every edge of the clock, and reset alone reaches all of the machine. The control port's handshake
would not survive a delay, and little is behind it."""

READABLE: dict[str, int] = {
    "cycle": 64, "interrupt": 1, "sample_words": 64,
    **{f"{memory}_{name}": width for memory in MEMORIES for name, width in _COUNTERS.items()},
    **{f"s_axil_{name}": width for name, width in _AXIL_OUT.items()},
}  # fmt: skip
"""Variables a test reads, with their widths. `cycle` counts clock edges since rst was last high."""

_TRACE = {"begin": 1, "cycle": 64, "issued": len(UNITS), "program_counter": 32, "started": len(UNITS),
          "finished": len(UNITS)}  # fmt: skip


@dataclass(frozen=True)
class _Wire:
    name: str
    width: int
    from_master: bool


def _channels(data_width: int, address_width: int, write: bool, user: bool = False) -> list[_Wire]:
    """The wires of an AXI4 port, without its prefix."""

    def address(channel: str) -> list[_Wire]:
        fields = {**_ADDRESS, "addr": address_width, **({"user": 1} if user else {}), "valid": 1}
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
    return f"  {kind} [{width - 1}:0] {name}{start};"


_PACED = {"araddr": 32, "awaddr": 32, "arlen": 8, "awlen": 8, "arsize": 3, "awsize": 3, "arburst": 2, "awburst": 2,
          **dict.fromkeys(("arvalid", "awvalid", "wvalid", "wlast", "rready", "bready", "arready", "awready", "wready",
                           "rvalid", "bvalid"), 1)}
"""What goes between a port and a board's memory controller."""


def _controller(names: Iterable[str]) -> list[str]:
    """A board's memory controller, behind the machine's ports."""
    pins = [f".m_axi_{name}_{wire}(c_{name}_{wire})" for name in names for wire in _PACED]
    return ["  dram_controller dram_controller (.sys_clk(clk), .sys_rst(rst_q),", "    " + ",\n    ".join(pins), "  );"]


def _memory(port: int, name: str, data_width: int, address_width: int, paced: bool) -> list[str]:
    """The wires of machine port m_axi_<name> and the memory at their end; ``paced``: by a board's controller."""
    shared, write = name == SHARED_PORT, name != "program"
    wires = _channels(data_width, address_width, write, shared)
    lines = [_declare("wire", wire.width, f"m_axi_{name}_{wire.name}") for wire in wires]
    connections = [".clk(clk)", ".rst(rst_q)", ".cycle(cycle)"]
    memory = "dram0" if shared else name
    if paced:
        lines += [_declare("wire", width, f"c_{name}_{wire}") for wire, width in _PACED.items()]
        connections += [f".c_{wire}(c_{name}_{wire})" for wire in _PACED]
    else:
        connections.append(".seed(seed_q)")
        connections += [f".{setting}({memory}_{setting}_q)" for setting in _SETTINGS]
        connections += [f".second_{setting}(dram1_{setting}_q)" for setting in _ERRORS]
    connections += [f".{counter}({memory}_{counter})" for counter in _COUNTERS]
    connections += [f".s_axi_{wire.name}(m_axi_{name}_{wire.name})" for wire in wires]
    # what the machine's port lacks rests: a program's write channels, AxUSER
    unused = {wire.name for wire in _channels(data_width, address_width, True, True) if wire.from_master}
    connections += [f".s_axi_{wire}('0)" for wire in sorted(unused - {wire.name for wire in wires})]
    parameters = f".DATA_WIDTH({data_width}), .ADDRESS_WIDTH({address_width}), .PORT({port}), .NAME(\"{memory}\")"
    if shared:
        parameters += ', .WINDOWS(2), .SECOND("dram1")'
    module = "axi_paced" if paced else "axi_dram"
    lines += [f"  {module} #({parameters}) memory_{name} (", "    " + ",\n    ".join(connections), "  );"]
    return lines


def weft_sim(*, axi_data_width: int, axi_address_width: int, stream_width: int, shared_dram: bool = False,
             paced: bool = False) -> str:
    """SystemVerilog of `weft_sim` around `weft_top` for an architecture's three widths and its DRAM ports.

    * Memories: axi_dram `dram0`, `dram1` (or one for both) and, read only, `program`; see sv/axi_dram.sv for their
      settings.
    * ``paced``: these are axi_paced (sv/axi_paced.sv) on a board's memory controller, a module `dram_controller`; their
      settings then mean nothing.
    * `cycle_limit`: when `cycle` reaches it, and it is not 0, the simulation ends with $fatal.
    * Samples: with +samples=<file>, each word of m_axis_sample is appended there as eight bytes, little-endian; a
      packet's end is counted by nothing but the words before it. `sample_words` counts them in any case.
    * Operations: with +operations=<file>, the events of the machine's trace port are written there (trace.cpp).
    * The instruction stream is tied off: programs come from memory.
    """
    ports = {SHARED_PORT: 0, "program": 2} if shared_dram else {name: port for port, name in enumerate(MEMORIES)}
    memories = []
    for name, port in ports.items():
        memories += _memory(port, name, stream_width if name == "program" else axi_data_width, axi_address_width,
                            paced)
    if paced:
        memories += _controller(ports)
    axi = [
        (f"m_axi_{name}_{wire.name}")
        for name in ports
        for wire in _channels(axi_data_width, axi_address_width, name != "program", name == SHARED_PORT)
    ]
    axil = [f"s_axil_{name}" for name in (*_AXIL_IN, *_AXIL_OUT)]
    same_name = ["clk", "interrupt", *axi, *axil]
    starts = {"rst": " = 1", "sample_tready": " = 1"}
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
            *(_declare("wire", width, f"trace_{name}") for name, width in _TRACE.items()),
            "  weft_top weft_top (",
            "    .rst(rst_q),\n" + "".join(f"    .{name}({name}),\n" for name in same_name)
            + "    .s_axis_instruction_tdata('0), .s_axis_instruction_tkeep('0), .s_axis_instruction_tlast(1'b0),\n"
            "    .s_axis_instruction_tvalid(1'b0), .s_axis_instruction_tready(),\n"
            "    .m_axis_sample_tdata(sample_tdata), .m_axis_sample_tlast(sample_tlast),\n"
            "    .m_axis_sample_tvalid(sample_tvalid), .m_axis_sample_tready(sample_tready_q),\n    "
            + ",\n    ".join(f".trace_{name}(trace_{name})" for name in _TRACE),
            "  );",
            _BEHAVIOUR,
            _RECORDER,
            "endmodule",
            "",
        ]
    )


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


_RECORDER = f"""\
  import "DPI-C" function int trace_open(input string path);
  import "DPI-C" function void trace_event(
    input longint unsigned cycle, input int kind, input int unit, input int unsigned program_counter);
  import "DPI-C" function void trace_close();

  string operations_path;
  bit recording = 0;
  initial if ($value$plusargs("operations=%s", operations_path)) begin
    if (trace_open(operations_path) == 0) $fatal(1, "cannot write operations to '%s'", operations_path);
    recording = 1;
  end
  final if (recording) trace_close();

  always @(posedge clk) if (recording & ~rst_q) begin
    if (trace_begin) trace_event(trace_cycle, {Kind.BEGIN}, 0, 0);
    if ((trace_issued | trace_started | trace_finished) != 0)
      for (int unit = 0; unit < {len(UNITS)}; unit++) begin
        if (trace_issued[unit]) trace_event(trace_cycle, {Kind.ISSUED}, unit, trace_program_counter);
        if (trace_started[unit]) trace_event(trace_cycle, {Kind.STARTED}, unit, 0);
        if (trace_finished[unit]) trace_event(trace_cycle, {Kind.FINISHED}, unit, 0);
      end
  end"""


def public_vlt() -> str:
    """The body of the Verilator control file that goes with ``weft_sim``."""
    writable = [f'public_flat_rw -module "weft_sim" -var "{name}" @(posedge clk)' for name in WRITABLE]
    readable = [f'public_flat_rd -module "weft_sim" -var "{name}"' for name in ("clk", *READABLE)]
    return "\n".join([*writable, *readable, ""])
