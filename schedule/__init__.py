# SPDX-License-Identifier: Apache-2.0
"""Schedules of a mesh of cores as JSON: read, checked, written (docs/schedule-ir.md)."""
