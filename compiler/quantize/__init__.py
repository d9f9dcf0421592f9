"""Fixed point: ranges from calibration, then a binary point for every tensor and every layer's weights; constants as
vectors of scalars."""
