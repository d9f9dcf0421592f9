# SPDX-License-Identifier: Apache-2.0
"""Reports of a compiled network: one page of HTML, and a trace for Perfetto."""
