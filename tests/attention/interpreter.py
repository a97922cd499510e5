"""Checks that run in Triton's interpreter, in a process of their own, and what kernels compile to for Hopper.

An interpreted kernel that writes where it must not damages its process. So a test file hands its checks to a `Checks`,
runs them when it is started as a script, and has a test that repeats what was said there. Interpreted kernels are slow:
where a file has many checks, several tests share them out, each with a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import torch

LONGEST = 1800  # seconds: a limit for what hangs, not for what is slow on a busy machine
interpreted = pytest.mark.timeout(LONGEST + 60)  # marks the tests below: their process is ended before they are


@dataclass
class Checks:
    """The checks of one file, by name; as a decorator it takes one in."""

    file: str
    named: dict[str, Callable[[], None]] = field(default_factory=dict)

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        self.named[function.__name__] = function
        return function

    def run(self) -> None:
        """What the script does: the checks of its part, and what each said, as one line of JSON at the end."""
        said: dict[str, str | None] = {}
        torch.set_num_threads(1)
        sum_products_in_float64()
        part, parts = map(int, sys.argv[1:] or (0, 1))
        for name in list(self.named)[part::parts]:
            try:
                self.named[name]()
                said[name] = None
            except Exception:  # noqa: BLE001 (the test repeats it)
                said[name] = traceback.format_exc()
        print(json.dumps(said))

    def said(self, part: int = 0, parts: int = 1) -> dict[str, str | None]:
        """What went wrong in each check, or in every `parts`-th of them; None where nothing did."""
        root = Path(__file__).parents[2]
        paths = [str(root / "src"), str(root / "tests")]
        told = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, self.file, str(part), str(parts)]
        done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=LONGEST, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
        return found

    def repeat(self, part: int = 0, parts: int = 1) -> None:
        """Fail as the checks of a part did; few parts for a file, as the interpreter takes seconds to start."""
        failed = {name: said for name, said in self.said(part, parts).items() if said is not None}
        assert not failed, "\n".join(f"{name}:\n{said}" for name, said in failed.items())


def sum_products_in_float64() -> None:
    """Make the interpreter's `tl.dot` exact to a rounding. numpy would give it to a BLAS whose order of summation is
    another on each CPU, and near a tolerance that order would decide; the rounding of real products is the GPU's to
    test."""
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle  # type: ignore[import-untyped]

    by_blas = InterpreterBuilder.create_dot

    def create_dot(builder: Any, a: Any, b: Any, sum_to: Any, *options: Any) -> Any:
        if sum_to.data.dtype != np.float32 or not {a.data.dtype, b.data.dtype} <= {np.dtype("f2"), np.dtype("f4")}:
            return by_blas(builder, a, b, sum_to, *options)
        found = np.matmul(a.data, b.data, dtype=np.float64) + sum_to.data
        return TensorHandle(found.astype(np.float32), sum_to.dtype.scalar)

    InterpreterBuilder.create_dot = create_dot


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Inside, fresh memory holds NaN, and whole numbers that mean nothing."""
    empty = torch.empty

    def poisoned(*args: Any, **options: Any) -> torch.Tensor:
        got = empty(*args, **options)
        return got.fill_(torch.nan) if got.is_floating_point() else got.fill_(-7)

    torch.empty = poisoned
    try:
        yield
    finally:
        torch.empty = empty


@dataclass(frozen=True)
class Compiled:
    """What a kernel became for Hopper: instructions by name, registers of a thread, bytes that did not fit there."""

    instructions: Mapping[str, int]
    registers: int
    spilled: int


def for_hopper(source: Any, **options: object) -> Compiled:
    """Compile for sm_90, which needs no GPU. `source`: an ASTSource of Triton's or Gluon's."""
    import triton  # type: ignore[import-untyped]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]

    done = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(done.asm["cubin"])
        file.flush()
        usage, code = (_dumped(file.name, flag) for flag in ("-res-usage", "-sass"))
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    named = Counter(re.findall(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9]+)", code, re.MULTILINE))
    return Compiled(named, *map(int, found.groups()))


def signature(kernel: Any, constants: Mapping[str, object], kinds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The arguments of an ASTSource: constants, pointers by their kind ("*fp32": ["LSE"]), and whole numbers else."""
    of = {name: kind for kind, names in kinds.items() for name in names}
    types = {name: "constexpr" if name in constants else of.get(name, "i32") for name in kernel.arg_names}
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(kernel.arg_names)
        if types[name].startswith("*") or name.startswith("stride")
    }
    fixed = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    return {"fn": kernel, "signature": types, "constexprs": fixed, "attrs": aligned}


def disassembled(cubin: bytes) -> str:
    """Machine code with the labels of its loops."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    if not tool.exists():
        pytest.skip("this Triton comes without nvdisasm")
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout


def _dumped(file: str, flag: str) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return subprocess.run([tool, flag, file], capture_output=True, text=True, check=True).stdout
