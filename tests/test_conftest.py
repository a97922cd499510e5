"""A missing browser is loud: it skips with a count, and fails where a browser is required."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

BROWSER_TESTS = """
    import pytest

    @pytest.mark.browser
    def test_page(): pass

    @pytest.mark.browser
    def test_zoom(): pass

    def test_plain(): pass
"""


@pytest.fixture
def bare(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small test suite under our conftest, on a machine where no program can be found."""
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n    browser: needs a browser")
    pytester.makepyfile(BROWSER_TESTS)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REGARD_REQUIRE_BROWSER", raising=False)
    return pytester


def test_without_a_browser_its_tests_are_skipped_loudly(bare: pytest.Pytester) -> None:
    done = bare.runpytest_subprocess("-p", "no:xdist")
    done.assert_outcomes(passed=1, skipped=2)
    done.stdout.fnmatch_lines(["NOT TESTED: 2 browser tests skipped: no browser found*"])


def test_where_a_browser_is_required_its_tests_fail(bare: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_REQUIRE_BROWSER", "1")
    done = bare.runpytest_subprocess("-p", "no:xdist")
    done.assert_outcomes(passed=1, errors=2)
    done.stdout.fnmatch_lines(["*REGARD_REQUIRE_BROWSER is set; install chromium*"])
