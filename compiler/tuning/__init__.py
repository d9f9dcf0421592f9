# SPDX-License-Identifier: Apache-2.0
"""Tuning: a search over what the compiler can choose, judged by the exact estimator; ``search.py`` first."""
