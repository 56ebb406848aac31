"""Grade-school sums whose answers are known: problems made from a seed, and the small model trained on them."""
