"""Xilinx ZCU104."""

from weft.boards.board import Board

BOARD = Board(name="Xilinx ZCU104", arch="zcu104", part="XCZU7EV", speed_grade="2", family="xc7",
              clock_hz=100e6)
