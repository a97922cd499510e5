"""Text to ids and back: the kinds of tokenizer, their special tokens, the pieces of a text. Start at tokenizer."""
