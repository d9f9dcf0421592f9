"""Vivado projects of boards whose chips no open place and route knows. Vivado itself is not needed to write them."""
