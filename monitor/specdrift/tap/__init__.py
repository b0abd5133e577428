"""Code that runs inside the engine; imports nothing of the rest of specdrift."""
