"""The loop and its HTTP API, built on ports."""
