"""Recipes as people write them: TOML and --set in, a checked Recipe out, and every mistake told with its line.

`toml` reads and writes the format; `structure` is what the sections' classes say about the data; `written` joins a file
with --set and knows where each setting came from; `refusals` turns what is wrong into words; `recipes` is the door.
"""
