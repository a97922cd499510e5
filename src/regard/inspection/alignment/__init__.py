"""Word alignments read off cross-attention: links, both directions merged, and how they agree with gold ones."""
