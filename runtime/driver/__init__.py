# SPDX-License-Identifier: Apache-2.0
"""Machines behind a link: transports, the checked bridge over them, registers, and ``Device``, which users open."""
