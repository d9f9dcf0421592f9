# SPDX-License-Identifier: Apache-2.0
"""Helpers that every room needs: errors in four parts, files read and written with care, caches, packages."""
