# SPDX-License-Identifier: Apache-2.0
"""The AXI side: readers and writers of DRAM and programs, control registers, and the ports of several cores."""
