# SPDX-License-Identifier: Apache-2.0
"""Bitstreams of Xilinx 7 series chips without Vivado: yosys, then the tools of openXC7 that a user has installed."""
