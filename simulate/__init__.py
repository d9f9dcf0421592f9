# SPDX-License-Identifier: Apache-2.0
"""The generated Verilog under Verilator: tools, builds, memories, jobs, the trace of operations."""
