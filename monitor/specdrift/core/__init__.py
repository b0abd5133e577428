"""Pure domain logic: no I/O, clock, logging or randomness."""
