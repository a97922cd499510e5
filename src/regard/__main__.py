"""Lets `python -m regard` be the same as the `regard` command."""

from regard.cli import main

if __name__ == "__main__":
    main()
