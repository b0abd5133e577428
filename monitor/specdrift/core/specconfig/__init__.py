"""Read, validate and write the speculative config in the spelling found."""

from specdrift.core.specconfig.argv import FoundConfig, Spelling, read_argv, write_argv
from specdrift.core.specconfig.model import (
    NGRAM_PRESET,
    OFF,
    SpecConfig,
    lower_num_speculative_tokens,
)
from specdrift.core.specconfig.validation import validate
from specdrift.core.specconfig.versions import parse_version

__all__ = [
    "NGRAM_PRESET",
    "OFF",
    "FoundConfig",
    "SpecConfig",
    "Spelling",
    "lower_num_speculative_tokens",
    "parse_version",
    "read_argv",
    "validate",
    "write_argv",
]
