# SPDX-License-Identifier: Apache-2.0
"""The machine in time: how many cycles a program takes, without simulating its logic."""
