"""What surrounds the machine on a board: memory controller, host link, clocks; and the way to a bitstream."""
