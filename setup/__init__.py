"""The set-up room: makes the loop's environment, the CPU engine's environment and the small model, once."""
