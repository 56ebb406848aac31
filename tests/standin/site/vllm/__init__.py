"""Not vLLM: the stand-in's list of flags, in the place where whoever reads an engine's source looks for it."""
