"""The SIMD unit: micro-operations, registers, ALU, and lookup tables."""
