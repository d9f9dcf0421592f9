# SPDX-License-Identifier: Apache-2.0
"""A boot image: a network and the firmware that runs it without a host, on ``boards/shell/standalone.py``."""
