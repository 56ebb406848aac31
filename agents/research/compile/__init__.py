"""What can be known of a Triton kernel without a card: its registers, LDS and spills from a cross compile, and how many
variants of it a server would compile. The compiler lives in the engine's environment, so it runs in a child process
(`worker.py`); everything else here reads source as text and syntax trees."""
