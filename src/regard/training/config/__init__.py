"""Recipe files: TOML and --set become a validated Recipe, and every mistake is reported with its line.

`source` joins a file with --set and knows where each setting came from; `schema` reads the pydantic classes of the
sections; `validation_errors` words what is wrong; `recipes` reads and writes recipes: start there. The TOML reader
itself is runs/toml.py.
"""
