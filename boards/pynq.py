"""Xilinx PYNQ-Z1."""

from weft.boards.board import Board

BOARD = Board(name="Xilinx PYNQ-Z1", arch="pynq", part="XC7Z020", speed_grade="1", family="xc7",
              clock_hz=150e6)
