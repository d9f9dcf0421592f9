# SPDX-License-Identifier: Apache-2.0
"""The machines that ship, as data: NAME.tarch."""
