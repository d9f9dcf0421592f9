# SPDX-License-Identifier: Apache-2.0
"""The systolic array, and the units that feed it: load_weight and mat_mul."""
