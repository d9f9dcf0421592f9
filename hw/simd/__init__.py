# SPDX-License-Identifier: Apache-2.0
"""The SIMD unit: micro-operations, registers, ALU, and lookup tables."""
