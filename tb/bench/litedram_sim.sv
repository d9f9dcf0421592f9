// SPDX-License-Identifier: Apache-2.0
// LiteDRAM's controller with two AXI4 masters that ask at random, recorded cycle by cycle for the estimator's model.
// A line a cycle, a number for each of: ar valid, address, beats, taken; aw the same; w valid, last, taken; r ready,
// taken; b taken; of master a, then b; at last the refresh timer's count.
module random_master #(parameter WIDTH = 64) (
  input clk, input rst, input [63:0] seed,
  output reg arvalid, output reg [31:0] araddr, output reg [7:0] arlen, input arready,
  output reg awvalid, output reg [31:0] awaddr, output reg [7:0] awlen, input awready,
  output reg wvalid, output wlast, input wready,
  input rvalid, output reg rready, input bvalid
);
  localparam BYTES = WIDTH / 8;
  reg [63:0] random;
  reg [31:0] at;
  reg [7:0] read_rate, write_rate, ready_rate, data_rate;  // in 256
  reg [11:0] age;
  reg [15:0] pending;                                      // beats to be written of the bursts asked for
  reg [7:0] lens [16];                                     // of these bursts
  reg [3:0] put, got;
  reg [7:0] beat;
  assign wlast = beat == lens[got];

  function automatic [63:0] xorshift64(input [63:0] x);
    xorshift64 = x ^ (x << 13);
    xorshift64 = xorshift64 ^ (xorshift64 >> 7);
    xorshift64 = xorshift64 ^ (xorshift64 << 17);
  endfunction
  function automatic [7:0] rate(input [3:0] x);            // often never, often always
    rate = x < 4 ? 0 : x < 8 ? 255 : x < 12 ? 20 : 90;
  endfunction
  function automatic [7:0] length(input [3:0] x, input [31:0] from);
    automatic int left = (4096 - (from & 4095)) / BYTES;
    automatic int wanted = x < 5 ? 1 : x < 7 ? 2 : x < 9 ? 3 : x < 12 ? 8 : x < 15 ? 16 : 40;
    length = 8'((wanted < left ? wanted : left) - 1);
  endfunction
  // mostly straight on; else anywhere in 256 KiB, or near by
  wire [31:0] jump = random[2:0] == 0 ? 32'(random[20:3]) & ~(BYTES - 1) : random[2:0] == 1 ? at ^ 32'h400 : at;
  wire [7:0] len = length(random[24:21], jump);
  wire ask_read = random[39:32] < read_rate, ask_write = random[47:40] < write_rate;

  always @(posedge clk) begin
    random <= xorshift64(random);
    if (rst) begin
      random <= xorshift64((seed * 64'h9E3779B97F4A7C15) | 1);
      {arvalid, awvalid, wvalid, rready, at, age, put, got, beat, pending} <= 0;
      {read_rate, write_rate} <= 0; {ready_rate, data_rate} <= '1;
    end else begin
      age <= age + 1;
      if (age[8:0] == 500) begin
        read_rate <= rate(random[3:0]);
        write_rate <= rate(random[7:4]);
        ready_rate <= random[8] ? 255 : 128;
        data_rate <= random[9] ? 255 : 128;
      end
      if (arvalid & arready) arvalid <= 0;
      if (awvalid & awready) awvalid <= 0;
      rready <= random[55:48] <= ready_rate;
      if (wvalid & wready) begin
        wvalid <= 0;
        beat <= wlast ? 0 : beat + 1;
        got <= got + 4'(wlast);
        pending <= pending - 1;
      end
      if ((~arvalid | arready) & ask_read) begin
        {arvalid, araddr, arlen} <= {1'b1, jump, len};
        at <= (jump + (32'(len) + 1) * BYTES) & 32'h3ffff;
      end else if ((~awvalid | awready) & ask_write & 4'(put - got) < 12) begin
        {awvalid, awaddr, awlen} <= {1'b1, jump, len};
        lens[put] <= len;
        put <= put + 1;
        at <= (jump + (32'(len) + 1) * BYTES) & 32'h3ffff;
      end
      if (put != got & ~(wvalid & ~wready) & ~(wvalid & wready & wlast) & random[63:56] <= data_rate) wvalid <= 1;
    end
  end
endmodule

module litedram_sim #(parameter WIDTH_A = 64, WIDTH_B = 64) (input clk);
  logic rst = 1, done = 0;
  logic [63:0] seed = 1;
  logic [31:0] cycles = 0, cycle = 0;
  string path;
  int file = 0;
  initial begin
    if (!$value$plusargs("record=%s", path)) $fatal(1, "pass +record=<file>");
    file = $fopen(path, "w");
  end
  final $fclose(file);
  wire [15:0] refresh_count;
`define WIRES(N) \
  wire N``_arvalid, N``_arready, N``_awvalid, N``_awready, N``_wvalid, N``_wlast, N``_wready; \
  wire N``_rvalid, N``_rready, N``_bvalid; \
  wire [31:0] N``_araddr, N``_awaddr; \
  wire [7:0] N``_arlen, N``_awlen;
  `WIRES(a)
  `WIRES(b)
`define MASTER(N, W, S) random_master #(W) master_``N (.clk(clk), .rst(rst), .seed(S), \
  .arvalid(N``_arvalid), .araddr(N``_araddr), .arlen(N``_arlen), .arready(N``_arready), \
  .awvalid(N``_awvalid), .awaddr(N``_awaddr), .awlen(N``_awlen), .awready(N``_awready), \
  .wvalid(N``_wvalid), .wlast(N``_wlast), .wready(N``_wready), .rvalid(N``_rvalid), .rready(N``_rready), \
  .bvalid(N``_bvalid));
  `MASTER(a, WIDTH_A, seed)
  `MASTER(b, WIDTH_B, seed + 64'd1000)
`define PINS(N, W) \
  .N``_arvalid(N``_arvalid), .N``_araddr(N``_araddr), .N``_arlen(N``_arlen), .N``_arready(N``_arready), \
  .N``_arburst(2'b01), .N``_arsize(3'($clog2(W / 8))), .N``_awburst(2'b01), .N``_awsize(3'($clog2(W / 8))), \
  .N``_awvalid(N``_awvalid), .N``_awaddr(N``_awaddr), .N``_awlen(N``_awlen), .N``_awready(N``_awready), \
  .N``_wvalid(N``_wvalid), .N``_wlast(N``_wlast), .N``_wready(N``_wready), .N``_rvalid(N``_rvalid), \
  .N``_rready(N``_rready), .N``_rlast(), .N``_bvalid(N``_bvalid), .N``_bready(1'b1)
  dram_controller dram_controller (.sys_clk(clk), .sys_rst(rst), .refresh_count(refresh_count),
    `PINS(a, WIDTH_A), `PINS(b, WIDTH_B));
`define WRITE(N) $fwrite(file, "%0d %0d %0d %0d %0d %0d %0d %0d %0d %0d %0d %0d %0d %0d ", \
  N``_arvalid, N``_araddr, N``_arlen + 9'd1, N``_arvalid & N``_arready, \
  N``_awvalid, N``_awaddr, N``_awlen + 9'd1, N``_awvalid & N``_awready, \
  N``_wvalid, N``_wlast, N``_wvalid & N``_wready, N``_rready, N``_rvalid & N``_rready, N``_bvalid);
  always @(posedge clk) if (~rst) begin
    cycle <= cycle + 1;
    if (cycle < cycles) begin
      `WRITE(a)
      `WRITE(b)
      $fwrite(file, "%0d\n", refresh_count);
    end
    done <= cycle >= cycles;
  end
endmodule
