"""Digilent Arty A7-35T."""

from weft.boards.board import Board

BOARD = Board(name="Digilent Arty A7-35T", arch="arty", part="XC7A35T", speed_grade="1L", family="xc7",
              clock_hz=150e6, platform="amaranth_boards.arty_a7:ArtyA7_35Platform")
