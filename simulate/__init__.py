"""The generated Verilog under Verilator: tools, builds, memories, jobs, the trace of operations."""
