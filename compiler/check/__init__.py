"""`weft compile --check` and `--report`: every product of the compiler run, and compared."""
