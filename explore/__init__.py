# SPDX-License-Identifier: Apache-2.0
"""The search for a machine: among many, the fastest for some networks at each size of chip."""
