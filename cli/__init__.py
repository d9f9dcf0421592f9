"""The command line `weft`."""
