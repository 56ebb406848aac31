"""Tables that kernels are tuned by, and what a lookup in them finds."""
