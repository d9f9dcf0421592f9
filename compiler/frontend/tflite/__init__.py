# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files: ``schema.py`` reads one, ``operators.py`` converts operators, ``model.py`` makes the model."""
