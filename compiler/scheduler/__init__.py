"""The scheduler: HIR (layers) becomes LIR (one operation for each instruction), step by step."""
