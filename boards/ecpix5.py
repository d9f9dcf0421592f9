"""LambdaConcept ECPIX-5 85F."""

from weft.boards.board import Board

BOARD = Board(name="LambdaConcept ECPIX-5 85F", arch="ecpix5", part="LFE5UM5G-85F", speed_grade="8", family="ecp5",
              clock_hz=90e6, platform="amaranth_boards.ecpix5:ECPIX585Platform")
