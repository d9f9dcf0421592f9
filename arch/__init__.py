"""The machines that ship, as data: NAME.tarch."""
