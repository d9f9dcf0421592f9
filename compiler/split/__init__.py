# SPDX-License-Identifier: Apache-2.0
"""One image over several cores: a share of every layer for each core, and when they wait for each other."""
