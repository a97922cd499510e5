"""Models put to the question: which tokens they read, what they decide, and what they decide without some of them."""
