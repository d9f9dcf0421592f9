# SPDX-License-Identifier: Apache-2.0
"""Random programs and networks, each decided by a seed, and the rule by which each passes."""
