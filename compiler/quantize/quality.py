# SPDX-License-Identifier: Apache-2.0
"""The limit below which results are too poor to be of use."""

POOR_DECIBELS = 20.0
"""The signal to noise (dB) of an output below which it counts as lost: noise has a tenth of its magnitude."""
