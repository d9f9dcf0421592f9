"""Avnet Ultra96."""

from weft.boards.board import Board

BOARD = Board(name="Avnet Ultra96", arch="ultra96", part="XCZU3EG", speed_grade="1", family="xc7",
              clock_hz=300e6)
