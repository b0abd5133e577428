"""specdrift: watches, explains and steers speculative decoding in LLM inference servers."""

__version__ = "0.1.0"
