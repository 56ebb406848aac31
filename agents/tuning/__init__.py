"""Who changes one thing: levers, the scope check, the night's overlay, and the proof that a change is in use."""
