# SPDX-License-Identifier: Apache-2.0
"""Trained networks that ship, as data: digits/."""
