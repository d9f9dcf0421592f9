# SPDX-License-Identifier: Apache-2.0
"""Tests of the compiler: step by step, operator by operator, and whole networks on the golden machine."""
