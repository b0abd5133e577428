"""What each engine and version exports: samples of a page -> EngineCounters, and the gaps."""
