// SPDX-License-Identifier: Apache-2.0
// AXI4 slave memory on the simulator's side, backed by a file (dram.cpp). For simulation only.
//
// * INCR bursts, answered in order, up to 16 in flight each way, one beat a cycle both ways at once.
// * read_latency: cycles from the AR handshake to the first R handshake that is possible; write_latency: from the last
//   W handshake to B. Both count clock edges; less than 2 counts as 2. jitter: each burst takes 0..jitter cycles more.
// * stall_*: probability, in 1/256, that a channel rests in a cycle. All randomness comes from `seed`.
// * error_lo <= address < error_hi: read beats there, and write bursts that touch it, are answered with
//   error_response (SLVERR, DECERR or EXOKAY); the beats inside are not written, and read as zero.
// * WINDOWS = 2 or 3: a port shared by memories, which AxUSER tells apart: 0 means <NAME>, 1 the memory SECOND, which has
//   PORT + 1, a file of its own and second_error_*, 2 likewise the memory THIRD, with PORT + 2. All else they share.
// * A master that breaks an AXI rule ends the simulation with "AXI rule broken on <NAME>".
// * The file comes from the plus-argument +<NAME>=<path>; its size is the memory's.
//
// The configuration is sampled every cycle and may change while the simulation runs.
module axi_dram #(
  parameter DATA_WIDTH = 64, ADDRESS_WIDTH = 32, ID_WIDTH = 1, PORT = 0,
  parameter NAME = "dram0", WINDOWS = 1, SECOND = "", THIRD = ""
) (
  input clk, input rst,
  input [63:0] cycle,                                // since reset; time stamps of messages and counters
  input [63:0] seed,                                 // taken while rst is high
  input [15:0] read_latency, write_latency, jitter,
  input [7:0] stall_ar, stall_r, stall_aw, stall_w, stall_b,
  input [63:0] error_lo, error_hi, second_error_lo, second_error_hi, third_error_lo, third_error_hi,
  input [1:0] error_response,

  input [ID_WIDTH-1:0] s_axi_awid, input [ADDRESS_WIDTH-1:0] s_axi_awaddr, input [7:0] s_axi_awlen,
  input [2:0] s_axi_awsize, input [1:0] s_axi_awburst, input s_axi_awlock, input [3:0] s_axi_awcache,
  input [2:0] s_axi_awprot, input [3:0] s_axi_awqos, input [1:0] s_axi_awuser, input s_axi_awvalid, output s_axi_awready,
  input [DATA_WIDTH-1:0] s_axi_wdata, input [DATA_WIDTH/8-1:0] s_axi_wstrb, input s_axi_wlast,
  input s_axi_wvalid, output s_axi_wready,
  output reg [ID_WIDTH-1:0] s_axi_bid, output reg [1:0] s_axi_bresp, output reg s_axi_bvalid, input s_axi_bready,
  input [ID_WIDTH-1:0] s_axi_arid, input [ADDRESS_WIDTH-1:0] s_axi_araddr, input [7:0] s_axi_arlen,
  input [2:0] s_axi_arsize, input [1:0] s_axi_arburst, input s_axi_arlock, input [3:0] s_axi_arcache,
  input [2:0] s_axi_arprot, input [3:0] s_axi_arqos, input [1:0] s_axi_aruser, input s_axi_arvalid, output s_axi_arready,
  output reg [ID_WIDTH-1:0] s_axi_rid, output reg [DATA_WIDTH-1:0] s_axi_rdata, output reg [1:0] s_axi_rresp,
  output reg s_axi_rlast, output reg s_axi_rvalid, input s_axi_rready,

  output reg [63:0] read_beats, write_beats,         // R and W handshakes
  output reg [63:0] first_cycle, last_cycle          // of the first AR or AW, of the last R or B handshake
);
  import "DPI-C" function longint unsigned dram_open(input int port, input string path);
  import "DPI-C" function void dram_read_start(
    input int port, input int slot, input longint unsigned address, input int bytes, input int snapshot);
  import "DPI-C" function int unsigned dram_read_word(input int port, input int slot, input int offset);
  import "DPI-C" function void dram_write_start(input int port, input int slot);
  import "DPI-C" function void dram_write_word(
    input int port, input int slot, input longint unsigned address, input int unsigned data, input int strobe);
  import "DPI-C" function void dram_write_commit(input int port, input int slot);

  localparam SLOTS = 16;                             // kSlots in dram.cpp at most
  localparam BYTES = DATA_WIDTH / 8;
  localparam SIZE = $clog2(BYTES);
  localparam [1:0] OKAY = 2'b00;

  string path;
  longint unsigned memory_bytes, second_bytes, third_bytes;
  initial begin
    if (!$value$plusargs({NAME, "=%s"}, path)) $fatal(1, "%s: no file given, pass +%s=<path>", NAME, NAME);
    memory_bytes = dram_open(PORT, path);
    if (memory_bytes == 0) $fatal(1, "%s: cannot open '%s'", NAME, path);
    if (WINDOWS >= 2) begin
      if (!$value$plusargs({SECOND, "=%s"}, path)) $fatal(1, "%s: no file given, pass +%s=<path>", SECOND, SECOND);
      second_bytes = dram_open(PORT + 1, path);
      if (second_bytes == 0) $fatal(1, "%s: cannot open '%s'", SECOND, path);
    end
    if (WINDOWS == 3) begin
      if (!$value$plusargs({THIRD, "=%s"}, path)) $fatal(1, "%s: no file given, pass +%s=<path>", THIRD, THIRD);
      third_bytes = dram_open(PORT + 2, path);
      if (third_bytes == 0) $fatal(1, "%s: cannot open '%s'", THIRD, path);
    end
  end

  // ---- randomness: one xorshift64 step a cycle, its bytes dealt out to the channels
  reg [63:0] random;
  function automatic [63:0] xorshift64(input [63:0] x);
    xorshift64 = x ^ (x << 13);
    xorshift64 = xorshift64 ^ (xorshift64 >> 7);
    xorshift64 = xorshift64 ^ (xorshift64 << 17);
  endfunction
  wire rest_ar = random[7:0] < stall_ar, rest_r = random[15:8] < stall_r, rest_aw = random[23:16] < stall_aw;
  wire rest_w = random[31:24] < stall_w, rest_b = random[39:32] < stall_b;
  wire [63:0] extra = jitter == 0 ? 64'd0 : 64'(random[55:40]) % (64'(jitter) + 1);

  // ---- the bursts in flight: rings indexed by free-running counters
  reg [ID_WIDTH-1:0] read_id [SLOTS];
  reg [1:0] read_window [SLOTS], write_window [SLOTS];  // AxUSER
  reg [63:0] read_base [SLOTS];                      // address of the bus word of the first beat
  reg [7:0] read_len [SLOTS];
  reg [63:0] read_due [SLOTS];                       // cycle from which the first beat may be put on R
  reg [4:0] read_in, read_out;                       // accepted on AR; put on R to the last beat
  reg [7:0] read_beat;
  reg [ID_WIDTH-1:0] write_id [SLOTS];
  reg [63:0] write_base [SLOTS];
  reg [SIZE:0] write_skip [SLOTS];                   // unaligned start: bytes of the first bus word not addressed
  reg [7:0] write_len [SLOTS];
  reg [63:0] write_due [SLOTS];
  reg [4:0] write_in, write_fill, write_out;         // accepted on AW; all data here; response given
  reg [7:0] write_beat;

  wire [3:0] ri = read_in[3:0], ro = read_out[3:0], wi = write_in[3:0], wf = write_fill[3:0], wo = write_out[3:0];
  wire [63:0] araddr = 64'(s_axi_araddr), awaddr = 64'(s_axi_awaddr);
  wire [63:0] ar_base = araddr & ~64'(BYTES - 1), aw_base = awaddr & ~64'(BYTES - 1);
  wire [63:0] read_offset = 64'(read_beat) << SIZE;
  wire [63:0] read_at = read_base[ro] + read_offset, write_at = write_base[wf] + (64'(write_beat) << SIZE);
  wire [63:0] write_end = write_base[wo] + ((64'(write_len[wo]) + 1) << SIZE);

  assign s_axi_arready = (read_in - read_out != 5'(SLOTS)) & ~rest_ar;
  assign s_axi_awready = (write_in - write_out != 5'(SLOTS)) & ~rest_aw;
  assign s_axi_wready = (write_fill != write_in) & ~rest_w;
  wire put_r = (read_in != read_out) & (~s_axi_rvalid | s_axi_rready) & (cycle >= read_due[ro]) & ~rest_r;
  wire put_b = (write_fill != write_out) & (~s_axi_bvalid | s_axi_bready) & (cycle >= write_due[wo]) & ~rest_b;

  function automatic [63:0] due(input [15:0] latency);  // the answer is registered: seen one edge after it is due
    due = cycle + (latency < 2 ? 64'd1 : 64'(latency) - 1) + extra;
  endfunction

  function automatic bit faulty(input [1:0] window, input [63:0] lo, input [63:0] hi);
    faulty = window == 2 ? lo < third_error_hi && third_error_lo < hi
      : window == 1 ? lo < second_error_hi && second_error_lo < hi : lo < error_hi && error_lo < hi;
  endfunction

  wire [1:0] ar_window = WINDOWS == 1 ? 2'd0 : s_axi_aruser, aw_window = WINDOWS == 1 ? 2'd0 : s_axi_awuser;
  wire [1:0] r_window = read_window[ro], w_window = write_window[wf], b_window = write_window[wo];

  always @(posedge clk) begin
    if (rst) begin
      random <= xorshift64(((seed + 64'(PORT) + 1) * 64'h9E3779B97F4A7C15) | 1);
      {read_in, read_out, write_in, write_fill, write_out} <= 0;
      {read_beat, write_beat} <= 0;
      {s_axi_rvalid, s_axi_rlast, s_axi_bvalid} <= 0;
      {read_beats, write_beats, last_cycle} <= 0;
      first_cycle <= '1;
    end else begin
      random <= xorshift64(random);

      // reads
      if (s_axi_arvalid & s_axi_arready) begin
        check_address("AR", ar_window, araddr, s_axi_arlen, s_axi_arsize, s_axi_arburst);
        read_window[ri] <= ar_window;
        dram_read_start(PORT + 32'(ar_window), 32'(ri), ar_base, (32'(s_axi_arlen) + 1) * BYTES, 32'(random[63]));
        read_id[ri] <= s_axi_arid;
        read_base[ri] <= ar_base;
        read_len[ri] <= s_axi_arlen;
        read_due[ri] <= due(read_latency);
        read_in <= read_in + 1;
      end
      if (s_axi_rvalid & s_axi_rready) begin
        s_axi_rvalid <= 0;
        read_beats <= read_beats + 1;
      end
      if (put_r) begin
        for (int i = 0; i < BYTES / 4; i++)
          s_axi_rdata[32*i +: 32] <= dram_read_word(PORT + 32'(r_window), 32'(ro), 32'(read_offset) + 4 * i);
        if (faulty(r_window, read_at, read_at + BYTES)) s_axi_rdata <= 0;
        s_axi_rresp <= faulty(r_window, read_at, read_at + BYTES) ? error_response : OKAY;
        s_axi_rid <= read_id[ro];
        s_axi_rlast <= read_beat == read_len[ro];
        s_axi_rvalid <= 1;
        read_beat <= read_beat == read_len[ro] ? 0 : read_beat + 1;
        if (read_beat == read_len[ro]) read_out <= read_out + 1;
      end

      // writes
      if (s_axi_awvalid & s_axi_awready) begin
        check_address("AW", aw_window, awaddr, s_axi_awlen, s_axi_awsize, s_axi_awburst);
        write_window[wi] <= aw_window;
        dram_write_start(PORT + 32'(aw_window), 32'(wi));
        write_id[wi] <= s_axi_awid;
        write_base[wi] <= aw_base;
        write_skip[wi] <= (SIZE+1)'(awaddr - aw_base);
        write_len[wi] <= s_axi_awlen;
        write_in <= write_in + 1;
      end
      if (s_axi_wvalid & s_axi_wready) begin
        if (s_axi_wlast != (write_beat == write_len[wf])) broken("WLAST on the last beat of a burst and only there");
        if (write_beat == 0 && (s_axi_wstrb & ~({BYTES{1'b1}} << write_skip[wf])) != 0)
          broken("WSTRB low for the bytes below an unaligned start address");
        if (!faulty(w_window, write_at, write_at + BYTES))
          for (int i = 0; i < BYTES / 4; i++)
            if (s_axi_wstrb[4*i +: 4] != 0)
              dram_write_word(PORT + 32'(w_window), 32'(wf), write_at + 4 * i, s_axi_wdata[32*i +: 32],
                              32'(s_axi_wstrb[4*i +: 4]));
        write_beats <= write_beats + 1;
        write_beat <= write_beat == write_len[wf] ? 0 : write_beat + 1;
        if (write_beat == write_len[wf]) begin
          write_due[wf] <= due(write_latency);
          write_fill <= write_fill + 1;
        end
      end
      if (s_axi_bvalid & s_axi_bready) s_axi_bvalid <= 0;
      if (put_b) begin
        dram_write_commit(PORT + 32'(b_window), 32'(wo));
        s_axi_bid <= write_id[wo];
        s_axi_bresp <= faulty(b_window, write_base[wo], write_end) ? error_response : OKAY;
        s_axi_bvalid <= 1;
        write_out <= write_out + 1;
      end

      if (((s_axi_arvalid & s_axi_arready) | (s_axi_awvalid & s_axi_awready)) && &first_cycle) first_cycle <= cycle;
      if ((s_axi_rvalid & s_axi_rready) | (s_axi_bvalid & s_axi_bready)) last_cycle <= cycle;
    end
  end

  // ---- the rules a master must keep
  task automatic broken(input string rule);
    $fatal(1, "AXI rule broken on %s in cycle %0d: %s", NAME, cycle, rule);
  endtask

  task automatic check_address(
    input string channel, input [1:0] window, input [63:0] address, input [7:0] len, input [2:0] size, input [1:0] burst);
    logic [63:0] last;
    last = (address & ~64'(BYTES - 1)) + ((64'(len) + 1) << SIZE) - 1;
    if (burst != 2'b01) broken({channel, ": burst type INCR"});
    if (size != 3'(SIZE)) broken({channel, ": size of the full bus"});
    if (address[63:12] != last[63:12]) broken({channel, ": no burst crosses a 4 KiB boundary"});
    if (last >= (window == 2 ? third_bytes : window == 1 ? second_bytes : memory_bytes)) broken({channel, ": access inside the memory"});
  endtask

  // A channel that was valid and not ready at the last edge must show the same offer again.
  wire [ADDRESS_WIDTH+ID_WIDTH+26:0] ar_offer = {s_axi_aruser, s_axi_araddr, s_axi_arid, s_axi_arlen, s_axi_arsize, s_axi_arburst,
    s_axi_arlock, s_axi_arcache, s_axi_arprot, s_axi_arqos};
  wire [ADDRESS_WIDTH+ID_WIDTH+26:0] aw_offer = {s_axi_awuser, s_axi_awaddr, s_axi_awid, s_axi_awlen, s_axi_awsize, s_axi_awburst,
    s_axi_awlock, s_axi_awcache, s_axi_awprot, s_axi_awqos};
  wire [DATA_WIDTH+BYTES:0] w_offer = {s_axi_wdata, s_axi_wstrb, s_axi_wlast};
  reg [ADDRESS_WIDTH+ID_WIDTH+26:0] ar_held, aw_held;
  reg [DATA_WIDTH+BYTES:0] w_held;
  reg ar_waits, aw_waits, w_waits;
  always @(posedge clk) begin
    ar_waits <= ~rst & s_axi_arvalid & ~s_axi_arready;
    aw_waits <= ~rst & s_axi_awvalid & ~s_axi_awready;
    w_waits <= ~rst & s_axi_wvalid & ~s_axi_wready;
    if (s_axi_arvalid & ~s_axi_arready) ar_held <= ar_offer;
    if (s_axi_awvalid & ~s_axi_awready) aw_held <= aw_offer;
    if (s_axi_wvalid & ~s_axi_wready) w_held <= w_offer;
    if (~rst & ar_waits & ~s_axi_arvalid) broken("ARVALID stays until ARREADY");
    if (~rst & aw_waits & ~s_axi_awvalid) broken("AWVALID stays until AWREADY");
    if (~rst & w_waits & ~s_axi_wvalid) broken("WVALID stays until WREADY");
    if (~rst & ar_waits & s_axi_arvalid & (ar_held != ar_offer)) broken("AR payload stable until ARREADY");
    if (~rst & aw_waits & s_axi_awvalid & (aw_held != aw_offer)) broken("AW payload stable until AWREADY");
    if (~rst & w_waits & s_axi_wvalid & (w_held != w_offer)) broken("W payload stable until WREADY");
  end
endmodule
