"""Who finds hypotheses: the installed engine's knobs, readers with one question each, and the ranking."""
