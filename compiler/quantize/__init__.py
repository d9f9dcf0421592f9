# SPDX-License-Identifier: Apache-2.0
"""Quantization: ranges from calibration, quantization parameters for every tensor and layer, constants as integers.

A machine of fixed point gets a binary point for every tensor and for every layer's weights, an INT8 machine scales."""
