"""The report of an audit: what it found, as one page to read or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import RecordError, SettingError
from regard.files import write_whole
from regard.trust.findings import VERSION, Finding, Findings
from regard.trust.intervals import Estimate
from regard.trust.page import page
from regard.trust.verdict import Verdict


class Report(Findings):
    """What an audit found; it can be saved, and read back."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """As JSON, or as one page (.html) with figures."""
        target = expect_writable(Path(path))
        text = page(self) if target.suffix == ".html" else json.dumps(self.told(), ensure_ascii=False)
        write_whole(target, text.encode())
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read the JSON back."""
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            version = told.get("version")
            if version == VERSION:
                findings = [Finding(one["map"], one["kind"], one["test"], _estimate(one)) for one in told["findings"]]
                return cls(told["facts"], findings, [Verdict(**one) for one in told["verdicts"]], told["examined"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"a file that cannot be read ({error})", "a report", where=str(path)) from None
        raise RecordError(f"a report of version {version}", f"version {VERSION}", where=str(path))


def expect_writable(path: Path) -> Path:
    """The same path, if a report can be written there."""
    if path.suffix not in (".json", ".html"):
        raise SettingError(str(path), "a name that ends in .html or .json", where="audit")
    if not path.parent.is_dir():
        raise SettingError(str(path), f"a folder that is there; {path.parent} is not", where="audit")
    return path


def _estimate(one: Mapping[str, Any]) -> Estimate:
    return Estimate(one["value"], one["low"], one["high"], one["count"])
