"""`python -m regard`, the same as the command `regard`; a module of its own because Python looks for this name."""

from regard.cli import main

if __name__ == "__main__":
    main()
