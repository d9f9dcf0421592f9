# SPDX-License-Identifier: Apache-2.0
"""The golden machine: the meaning of a program, in numpy. It imports only the contract of ``weft.hw``."""
