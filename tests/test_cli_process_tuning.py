"""Freed memory is kept where glibc is, unless somebody has set its allocator: then their word stands."""

import subprocess
import sys

import pytest

SCRIPT = """
from regard.cli.process_tuning import keep_freed_memory
granted = keep_freed_memory()
import resource, torch
torch.set_num_threads(1)
for _ in range(20): torch.ones(2_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50): torch.ones(2_000_000)
print(granted, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> tuple[str, int]:
    """Whether it was granted, and how many pages fifty tensors of 8 MB fetched."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    granted, count = ran.stdout.split()
    return granted, int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_a_tensor_that_comes_again_costs_no_pages() -> None:
    kept, few = faults()
    if kept == "False":
        pytest.skip("no glibc")
    given, many = faults(MALLOC_TOP_PAD_="0", MALLOC_MMAP_THRESHOLD_="131072")
    assert (kept, given) == ("True", "False")
    assert few < many / 10
