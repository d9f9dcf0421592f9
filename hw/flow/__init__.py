# SPDX-License-Identifier: Apache-2.0
"""From a machine to files: Verilog, synthesis counts, place and route, tables for people and drivers."""
