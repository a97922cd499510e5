"""Writes public_names.json, which test_public.py compares the rooms with: `make public-names`."""

import json
from importlib import import_module
from pathlib import Path

from boundary import PACKAGES


def main() -> None:
    names = {package: sorted(import_module(package).__all__) for package in ("regard", *sorted(PACKAGES))}
    path = Path(__file__).parent / "public_names.json"
    path.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
