# SPDX-License-Identifier: Apache-2.0
"""What every room needs and none owns: errors in four parts, files read and written with care, caches, packages."""
