"""Tokenizers: BPE, WordPiece, unigram and others, their special tokens, OOV words. Start at `tokenizer`."""
