"""`weft compile --check` and `--report`: every product of the compiler is run and compared."""
