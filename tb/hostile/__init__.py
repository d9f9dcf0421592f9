# SPDX-License-Identifier: Apache-2.0
"""Hostile files and command lines for every reader and every command: each must be refused by one message."""
