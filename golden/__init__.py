"""The golden machine: what a program means, in numpy. Imports only the contract of ``weft.hw``."""
