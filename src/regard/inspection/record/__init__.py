"""Records of attention, linear in the length of the text, from which any tile of any map is recomputed."""
