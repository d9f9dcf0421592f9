// SPDX-License-Identifier: Apache-2.0
// One axi_dram with its AXI port and settings laid open to cocotb.
module axi_dram_tb #(
  parameter DATA_WIDTH = 64, ADDRESS_WIDTH = 32, ID_WIDTH = 4
) (input clk);
  logic rst = 1;
  logic [63:0] seed = 0, error_lo = 0, error_hi = 0, second_error_lo = 0, second_error_hi = 0;
  logic [63:0] third_error_lo = 0, third_error_hi = 0;
  logic [1:0] error_response = 2;
  logic [15:0] read_latency = 0, write_latency = 0, jitter = 0;
  logic [7:0] stall_ar = 0, stall_r = 0, stall_aw = 0, stall_w = 0, stall_b = 0;
  logic [63:0] cycle, read_beats, write_beats, first_cycle, last_cycle;
  always @(posedge clk) cycle <= rst ? 0 : cycle + 1;

  logic [ID_WIDTH-1:0] s_axi_awid = 0, s_axi_arid = 0, s_axi_bid, s_axi_rid;
  logic [ADDRESS_WIDTH-1:0] s_axi_awaddr = 0, s_axi_araddr = 0;
  logic [7:0] s_axi_awlen = 0, s_axi_arlen = 0;
  logic [2:0] s_axi_awsize = 0, s_axi_arsize = 0, s_axi_awprot = 0, s_axi_arprot = 0;
  logic [1:0] s_axi_awburst = 0, s_axi_arburst = 0, s_axi_bresp, s_axi_rresp;
  logic s_axi_awlock = 0, s_axi_arlock = 0;
  logic [1:0] s_axi_awuser = 0, s_axi_aruser = 0;
  logic [3:0] s_axi_awcache = 0, s_axi_arcache = 0, s_axi_awqos = 0, s_axi_arqos = 0;
  logic s_axi_awvalid = 0, s_axi_awready, s_axi_arvalid = 0, s_axi_arready;
  logic [DATA_WIDTH-1:0] s_axi_wdata = 0, s_axi_rdata;
  logic [DATA_WIDTH/8-1:0] s_axi_wstrb = 0;
  logic s_axi_wlast = 0, s_axi_wvalid = 0, s_axi_wready, s_axi_bvalid, s_axi_bready = 0;
  logic s_axi_rlast, s_axi_rvalid, s_axi_rready = 0;

  axi_dram #(.DATA_WIDTH(DATA_WIDTH), .ADDRESS_WIDTH(ADDRESS_WIDTH), .ID_WIDTH(ID_WIDTH), .PORT(1), .NAME("dram"))
    dut (.*);
endmodule
