"""What was seen: a record of attention, linear in the length of the text, from which any part of any map comes back."""
