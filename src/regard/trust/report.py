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
        target = Path(path)
        if target.suffix == ".html":
            text = page(self)
        elif target.suffix == ".json":
            text = json.dumps(self.told(), ensure_ascii=False)
        else:
            raise SettingError(str(target), "a name that ends in .html or .json", where="audit")
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


def _estimate(one: Mapping[str, Any]) -> Estimate:
    return Estimate(one["value"], one["low"], one["high"], one["count"])
