"""A simulated engine that speaks vLLM's HTTP surface. Everything here is simulated."""
