"""Tokenized corpora, in memory (columns) or memory-mapped from disk (store)."""
