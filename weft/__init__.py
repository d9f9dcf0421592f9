"""The package: one link for each room of the project."""
