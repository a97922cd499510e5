"""What people print in a notebook is short and telling: under 500 characters, whatever the size of the data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from faithfulness.reports import made
from page.sample import bert
from regard.attention import Observe, attend, capture
from regard.attention.kv_cache import KVCache
from regard.attention.layers import MultiHead
from regard.attention.masks import Causal, Dense, Padding
from regard.attention.scores import ScaledDot
from regard.decoding import Continuation, Translated
from regard.page import View
from regard.runs import Run

LONGEST = 500  # characters


class Layers(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MultiHead(16, 4) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def observed() -> object:
    q = torch.randn(2, 4, 300, 16)
    everything = Observe(top=8, entropy=True, received=True, thumbnail=(8, 8), weights=True, prepared=True, values=True)
    mask = Causal() & Padding(torch.tensor([300, 200])) & Dense(torch.ones(300, 300, dtype=torch.bool).tril())
    return attend(q, q, score=ScaledDot(), mask=mask, observe=everything)


def heard(count: int) -> object:
    model = Layers(count)
    with capture(model, observe=Observe(top=4, entropy=True, received=True)) as found:
        model(torch.randn(2, 60, 16))
    return found


def cached() -> object:
    cache = KVCache()
    cache.extend(torch.randn(1, 4, 200, 16), torch.randn(1, 4, 200, 16))
    return cache


def the_run(folder: Path) -> object:
    (folder / "recipe.toml").write_text('task = "classification"\nversion = 1\n', encoding="utf-8")
    return Run.open(folder)


PRINTED = {  # what is printed: what it must say
    "attended": (observed, "Attended(output (2, 4, 300, 16)"),
    "captured, one place": (lambda: heard(1), "layers.0: output (2, 4, 60, 4), top, entropy, received"),
    "captured, many places": (lambda: heard(40), "Captured(40 places)"),
    "cache": (cached, "KVCache(length 200"),
    "record": (bert, "Record('tiny BERT'"),
    "place": (lambda: bert().places[0], "PlaceRecord('encoder.0.self'"),
    "view": (lambda: View(bert()), "View('the black cat"),
    "report": (made, "12 decisions"),
    "report with many layers": (lambda: made(3, layers=60), "3 decisions"),
    "verdict": (lambda: made().verdicts[0], "Verdict("),
    "finding": (lambda: made().findings[0], "Finding("),
    "translated": (lambda: Translated("a", "la vache " * 300, -1.0, [1], [-1.0]), "Translated('la vache"),
    "continuation": (lambda: Continuation("the cow " * 300, [1], -1.0, True), "Continuation('the cow"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_is_short_and_telling(name: str) -> None:
    value, says = PRINTED[name]
    shown = repr(value())
    assert says in shown and len(shown) <= LONGEST, shown[:1000]


def test_a_run_is_printed_in_a_line(tmp_path: Path) -> None:
    shown = repr(the_run(tmp_path))
    assert shown == f"Run({str(tmp_path)!r}, task='classification')"
