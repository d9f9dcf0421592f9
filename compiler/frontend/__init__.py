# SPDX-License-Identifier: Apache-2.0
"""The frontend: a model file becomes a graph."""
