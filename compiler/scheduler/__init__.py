# SPDX-License-Identifier: Apache-2.0
"""The scheduler: HIR (layers) becomes LIR (one operation for each instruction), step by step."""
