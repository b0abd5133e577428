"""One outside system each; adapters do not know one another."""
