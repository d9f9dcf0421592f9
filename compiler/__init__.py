# SPDX-License-Identifier: Apache-2.0
"""The compiler: from an ONNX or TFLite file to a program of the machine. Begin with ``pipeline.py``."""
