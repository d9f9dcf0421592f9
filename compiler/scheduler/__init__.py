"""Scheduler: HIR becomes LIR, tile by tile."""
