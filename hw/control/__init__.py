# SPDX-License-Identifier: Apache-2.0
"""From instructions to operations that may start: fetch, decoder, interlock; and the machine's status."""
