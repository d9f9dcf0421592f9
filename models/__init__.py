"""Trained networks that ship, as data: digits/."""
