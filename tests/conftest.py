"""What every test shares: the Hypothesis profiles, and what happens to tests whose browser, GPU or data is missing."""

import os
import shutil
from functools import cache

import pytest
from hypothesis import settings

settings.register_profile("regard", derandomize=True, deadline=None)
settings.register_profile("long", derandomize=True, deadline=None, max_examples=1000)
settings.load_profile("regard")  # `--hypothesis-profile=long` comes later and wins

REQUIRE_BROWSER = "REGARD_REQUIRE_BROWSER"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

NEEDS = {
    "browser": f"no browser found (looked for {', '.join(BROWSERS)})",
    "gpu": "no CUDA device found",
    "data": "REGARD_DATA does not name a folder",
}


@cache
def here(need: str) -> bool:
    """Whether this machine has what tests with the marker `need` ask for."""
    if need == "browser":
        return any(shutil.which(name) for name in BROWSERS)
    if need == "gpu":
        import torch

        return torch.cuda.is_available()
    return os.path.isdir(os.environ.get("REGARD_DATA", ""))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for need, reason in NEEDS.items():
        if item.get_closest_marker(need) is None or here(need):
            continue
        if need == "browser" and os.environ.get(REQUIRE_BROWSER):
            pytest.fail(f"{reason}, and {REQUIRE_BROWSER} is set; install chromium", pytrace=False)
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly how many tests did not run for want of something, so that nobody takes a skip for a pass."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for need, reason in NEEDS.items():
        count = sum(reason in why for why in skipped)
        if count:
            terminalreporter.write_line(f"NOT TESTED: {count} {need} tests skipped: {reason}", red=True, bold=True)
