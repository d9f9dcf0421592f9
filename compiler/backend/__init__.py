# SPDX-License-Identifier: Apache-2.0
"""The backend: LIR becomes the files of a compiled model."""
