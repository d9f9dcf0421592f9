# SPDX-License-Identifier: Apache-2.0
"""Vivado projects of boards whose chips no open place and route supports. Vivado itself is not needed to write them."""
