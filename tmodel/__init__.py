# SPDX-License-Identifier: Apache-2.0
"""A compiled model as files: what it holds, how it is checked, how numbers are packed, what the host computes of it."""
