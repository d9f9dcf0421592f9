# SPDX-License-Identifier: Apache-2.0
"""The shell, what surrounds the machine on a board: memory controller, host link, clocks; and the bitstream."""
