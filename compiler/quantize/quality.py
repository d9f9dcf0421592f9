"""What numbers are too poor to be of use."""

POOR_DECIBELS = 20.0
"""Signal to noise of a network's output, below which its signal counts as lost: a tenth of it is noise."""
