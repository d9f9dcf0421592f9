// SPDX-License-Identifier: Apache-2.0
// An AXI4 port of the machine on a board's memory controller, for simulation: the controller says when each channel
// moves, and the file behind axi_dram.sv (dram.cpp) holds the data.
//
// * c_*: the controller's port. Its addresses are the machine's, from the plus-argument +<NAME>_base on, which says where
//   the window lies in the board's memory.
// * A read takes the value of its address's handshake, a write shows with its response. The machine depends on neither.
// * WINDOWS = 2, SECOND, read_beats and so on: as in axi_dram.sv. A master that breaks an AXI rule is not found out here.
module axi_paced #(
  parameter DATA_WIDTH = 64, ADDRESS_WIDTH = 32, ID_WIDTH = 1, PORT = 0,
  parameter NAME = "dram0", WINDOWS = 1, SECOND = ""
) (
  input clk, input rst,
  input [63:0] cycle,

  input [ID_WIDTH-1:0] s_axi_awid, input [ADDRESS_WIDTH-1:0] s_axi_awaddr, input [7:0] s_axi_awlen,
  input [2:0] s_axi_awsize, input [1:0] s_axi_awburst, input s_axi_awlock, input [3:0] s_axi_awcache,
  input [2:0] s_axi_awprot, input [3:0] s_axi_awqos, input s_axi_awuser, input s_axi_awvalid, output s_axi_awready,
  input [DATA_WIDTH-1:0] s_axi_wdata, input [DATA_WIDTH/8-1:0] s_axi_wstrb, input s_axi_wlast,
  input s_axi_wvalid, output s_axi_wready,
  output [ID_WIDTH-1:0] s_axi_bid, output [1:0] s_axi_bresp, output s_axi_bvalid, input s_axi_bready,
  input [ID_WIDTH-1:0] s_axi_arid, input [ADDRESS_WIDTH-1:0] s_axi_araddr, input [7:0] s_axi_arlen,
  input [2:0] s_axi_arsize, input [1:0] s_axi_arburst, input s_axi_arlock, input [3:0] s_axi_arcache,
  input [2:0] s_axi_arprot, input [3:0] s_axi_arqos, input s_axi_aruser, input s_axi_arvalid, output s_axi_arready,
  output [ID_WIDTH-1:0] s_axi_rid, output reg [DATA_WIDTH-1:0] s_axi_rdata, output [1:0] s_axi_rresp,
  output s_axi_rlast, output s_axi_rvalid, input s_axi_rready,

  output [31:0] c_araddr, c_awaddr, output [7:0] c_arlen, c_awlen, output [2:0] c_arsize, c_awsize,
  output [1:0] c_arburst, c_awburst, output c_arvalid, c_awvalid, c_wvalid, c_wlast, c_rready, c_bready,
  input c_arready, c_awready, c_wready, c_rvalid, c_bvalid,

  output reg [63:0] read_beats, write_beats, first_cycle, last_cycle
);
  import "DPI-C" function longint unsigned dram_open(input int port, input string path);
  import "DPI-C" function void dram_read_start(
    input int port, input int slot, input longint unsigned address, input int bytes, input int snapshot);
  import "DPI-C" function int unsigned dram_read_word(input int port, input int slot, input int offset);
  import "DPI-C" function void dram_write_start(input int port, input int slot);
  import "DPI-C" function void dram_write_word(
    input int port, input int slot, input longint unsigned address, input int unsigned data, input int strobe);
  import "DPI-C" function void dram_write_commit(input int port, input int slot);

  localparam SLOTS = 32;                             // equals kSlots in dram.cpp; the controller takes 18 at most
  localparam BEATS = 64;                             // written and not answered: the controller takes 17 at most
  localparam BYTES = DATA_WIDTH / 8;

  string path;
  longint unsigned memory_bytes, second_bytes, base = 0, second_base = 0;
  initial begin
    if (!$value$plusargs({NAME, "=%s"}, path)) $fatal(1, "%s: no file given, pass +%s=<path>", NAME, NAME);
    memory_bytes = dram_open(PORT, path);
    if (memory_bytes == 0) $fatal(1, "%s: cannot open '%s'", NAME, path);
    if (!$value$plusargs({NAME, "_base=%d"}, base)) base = 0;
    if (WINDOWS == 2) begin
      if (!$value$plusargs({SECOND, "=%s"}, path)) $fatal(1, "%s: no file given, pass +%s=<path>", SECOND, SECOND);
      second_bytes = dram_open(PORT + 1, path);
      if (second_bytes == 0) $fatal(1, "%s: cannot open '%s'", SECOND, path);
      if (!$value$plusargs({SECOND, "_base=%d"}, second_base)) second_base = 0;
    end
  end

  wire ar_window = WINDOWS == 2 & s_axi_aruser, aw_window = WINDOWS == 2 & s_axi_awuser;
  assign c_araddr = 32'(s_axi_araddr) + 32'(ar_window ? second_base : base);
  assign c_awaddr = 32'(s_axi_awaddr) + 32'(aw_window ? second_base : base);
  assign {c_arlen, c_arsize, c_arburst, c_arvalid} = {s_axi_arlen, s_axi_arsize, s_axi_arburst, s_axi_arvalid};
  assign {c_awlen, c_awsize, c_awburst, c_awvalid} = {s_axi_awlen, s_axi_awsize, s_axi_awburst, s_axi_awvalid};
  assign {c_wvalid, c_wlast, c_rready, c_bready} = {s_axi_wvalid, s_axi_wlast, s_axi_rready, s_axi_bready};
  assign {s_axi_arready, s_axi_awready, s_axi_wready} = {c_arready, c_awready, c_wready};
  assign {s_axi_rvalid, s_axi_bvalid} = {c_rvalid, c_bvalid};
  assign {s_axi_bid, s_axi_bresp, s_axi_rid, s_axi_rresp} = '0;

  reg [4:0] read_in, read_out, write_in, write_out;
  reg [7:0] read_beat;
  reg [7:0] read_len [SLOTS], write_len [SLOTS];
  reg read_window [SLOTS], write_window [SLOTS];
  reg [63:0] write_base [SLOTS];
  reg [5:0] beat_in, beat_out;
  reg [DATA_WIDTH-1:0] data [BEATS];
  reg [BYTES-1:0] strobe [BEATS];
  assign s_axi_rlast = read_beat == read_len[read_out];
  wire [63:0] araddr = 64'(s_axi_araddr) & ~64'(BYTES - 1), awaddr = 64'(s_axi_awaddr) & ~64'(BYTES - 1);

  task automatic store;
    automatic int port = PORT + 32'(write_window[write_out]);
    automatic bit [5:0] from = beat_out;
    dram_write_start(port, 32'(write_out));
    for (int beat = 0; beat <= 32'(write_len[write_out]); beat++) begin
      for (int i = 0; i < BYTES / 4; i++)
        if (strobe[from][4*i +: 4] != 0)
          dram_write_word(port, 32'(write_out), write_base[write_out] + 64'(beat * BYTES + 4 * i),
                          data[from][32*i +: 32], 32'(strobe[from][4*i +: 4]));
      from++;
    end
    dram_write_commit(port, 32'(write_out));
    beat_out <= from;
    write_out <= write_out + 1;
  endtask

  always @(posedge clk) begin
    if (rst) begin
      {read_in, read_out, read_beat, write_in, write_out, beat_in, beat_out} <= 0;
      {read_beats, write_beats, last_cycle} <= 0;
      first_cycle <= '1;
    end else begin
      automatic bit [4:0] slot = read_out;
      automatic bit [7:0] beat = read_beat;
      if (s_axi_arvalid & s_axi_arready) begin
        dram_read_start(PORT + 32'(ar_window), 32'(read_in), araddr, (32'(s_axi_arlen) + 1) * BYTES, 1);
        read_len[read_in] <= s_axi_arlen;
        read_window[read_in] <= ar_window;
        read_in <= read_in + 1;
      end
      if (s_axi_rvalid & s_axi_rready) begin
        read_beats <= read_beats + 1;
        slot = s_axi_rlast ? read_out + 1 : read_out;
        beat = s_axi_rlast ? 0 : read_beat + 1;
        read_out <= slot;
        read_beat <= beat;
      end
      if (slot != read_in)                           // data come some cycles after their address
        for (int i = 0; i < BYTES / 4; i++)
          s_axi_rdata[32*i +: 32] <= dram_read_word(PORT + 32'(read_window[slot]), 32'(slot),
                                                    32'(beat) * BYTES + 4 * i);
      if (s_axi_awvalid & s_axi_awready) begin
        write_base[write_in] <= awaddr;
        write_len[write_in] <= s_axi_awlen;
        write_window[write_in] <= aw_window;
        write_in <= write_in + 1;
      end
      if (s_axi_wvalid & s_axi_wready) begin
        data[beat_in] <= s_axi_wdata;
        strobe[beat_in] <= s_axi_wstrb;
        beat_in <= beat_in + 1;
        write_beats <= write_beats + 1;
      end
      if (s_axi_bvalid & s_axi_bready) store();
      if (((s_axi_arvalid & s_axi_arready) | (s_axi_awvalid & s_axi_awready)) && &first_cycle) first_cycle <= cycle;
      if ((s_axi_rvalid & s_axi_rready) | (s_axi_bvalid & s_axi_bready)) last_cycle <= cycle;
    end
  end
endmodule
