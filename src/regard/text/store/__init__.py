"""The ids of a corpus, in memory (columns) or once and for all on disk (store)."""
