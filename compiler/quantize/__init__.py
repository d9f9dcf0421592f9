"""Numbers: ranges from calibration, then a binary point or a scale for every tensor and for every layer's weights;
constants as vectors of scalars."""
