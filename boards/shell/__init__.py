"""The shell, what surrounds the machine on a board: memory controller, host link, clocks; and the bitstream."""
