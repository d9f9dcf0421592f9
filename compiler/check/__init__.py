# SPDX-License-Identifier: Apache-2.0
"""`weft compile --check` and `--report`: every product of the compiler is run and compared."""
