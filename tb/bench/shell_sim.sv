// SPDX-License-Identifier: Apache-2.0
// A board's shell with its UART as words of up to eight bytes: cocotb acts once a word, not once a byte.
module shell_sim (input clk);
  logic rst = 1;
  logic [63:0] send_bytes = 0;   // lowest byte first
  logic [3:0] send_count = 0;    // how many; a change of send_turn sends them
  logic send_turn = 0, send_done = 1;
  logic [3:0] take_count = 0;    // how many are wanted; a change of take_turn asks for them
  logic take_turn = 0, take_done = 1;
  logic [63:0] take_bytes = 0;
  logic [31:0] wait_cycles = 0;  // a change of wait_turn waits for so long; nothing taken for so long ends a wish
  logic wait_turn = 0, wait_done = 1;

  logic [63:0] sending;
  logic [3:0] send_left = 0, take_left = 0, taken = 0;
  logic [31:0] wait_left = 0, silent = 0;
  logic send_seen = 0, take_seen = 0, wait_seen = 0;
  wire sink_ready, source_valid;
  wire [7:0] source_data;
  wire source_ready = take_left != 0;

  always @(posedge clk) begin
    if (send_turn != send_seen) begin
      {send_seen, send_left, sending, send_done} <= {send_turn, send_count, send_bytes, 1'b0};
    end else if (send_left != 0 && sink_ready) begin
      sending <= sending >> 8;
      send_left <= send_left - 1;
      send_done <= send_left == 1;
    end
    if (wait_turn != wait_seen) begin
      {wait_seen, wait_left, wait_done} <= {wait_turn, wait_cycles, 1'b0};
    end else if (wait_left != 0) begin
      wait_left <= wait_left - 1;
      wait_done <= wait_left == 1;
    end
    silent <= source_ready && !source_valid ? silent + 1 : 0;
    if (take_turn != take_seen) begin
      {take_seen, take_left, taken, take_done} <= {take_turn, take_count, 4'd0, 1'b0};
    end else if (source_ready && silent == wait_cycles) begin
      {take_left, take_done} <= {4'd0, 1'b1};
    end else if (source_ready && source_valid) begin
      take_bytes[8 * taken +: 8] <= source_data;
      taken <= taken + 1;
      take_left <= take_left - 1;
      take_done <= take_left == 1;
    end
  end

  // the memory's state when the program was first asked for since watch_turn changed
  logic watch_turn = 0, watch_seen = 0, watching = 0;
  logic [511:0] watched = 0;
  wire [511:0] memory_state;
  wire program_asked;
  memory_watch memory_watch (.state(memory_state), .asked(program_asked));
  always @(posedge clk)
    if (watch_turn != watch_seen) {watch_seen, watching} <= {watch_turn, 1'b1};
    else if (watching & program_asked) {watching, watched} <= {1'b0, memory_state};

  shell shell (.sys_clk(clk), .sys_rst(rst), .sim_trace(1'b0),
               .serial_sink_data(sending[7:0]), .serial_sink_valid(send_left != 0), .serial_sink_ready(sink_ready),
               .serial_source_data(source_data), .serial_source_valid(source_valid), .serial_source_ready(source_ready));
endmodule
