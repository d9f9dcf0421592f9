# SPDX-License-Identifier: Apache-2.0
"""The contract between compiler, tools and hardware: what a machine is and what its programs mean.

It is plain Python without Amaranth and imports no other room, so that every room may import it."""
