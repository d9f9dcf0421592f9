# SPDX-License-Identifier: Apache-2.0
"""Formal proofs of the blocks on small parameters, with yosys, SymbiYosys and an SMT solver."""
