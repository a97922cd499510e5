"""Everything that is measured on a GPU, in one run: what users get at everyday lengths, attention that reports,
gradients, additive scores, copying, a captured Hugging Face model, sinks, caps and sparse keys, and training, each
beside its rivals.

    python3 benchmarks/h200.py [--parts everyday attention backward additive copying ...] [--out FOLDER]

Each part is a script of its own in benchmarks/h200/ and runs in a process of its own; what it prints is kept beside its
numbers in FOLDER. RESULTS.md tells what came out on an H200.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

PARTS = ("everyday", "attention", "backward", "additive", "copying", "capture", "variants", "training")


def run(part: str, folder: Path) -> int:
    """Run one part, show what it says and keep it; its exit code."""
    here = Path(__file__).parent
    paths = [str(here.parent / "src"), os.environ.get("PYTHONPATH", "")]
    told = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(here / "h200" / f"{part}.py"), "--out", str(folder / f"{part}.json")]
    start = time.monotonic()
    with (folder / f"{part}.txt").open("w", encoding="utf-8") as kept:
        work = subprocess.Popen(command, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert work.stdout is not None
        for line in work.stdout:
            print(line, end="", flush=True)
            kept.write(line)
        code = work.wait()
    print(f"--- {part}: {time.monotonic() - start:.0f} s{'' if code == 0 else f', exit code {code}'}\n", flush=True)
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, default=Path("out/h200"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    failed = [part for part in chosen.parts if run(part, chosen.out)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
