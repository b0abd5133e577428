"""The HTTP face of the simulated engine: what vLLM serves, said to be simulated."""
