"""Local memory and accumulators, and the units that move between them."""
