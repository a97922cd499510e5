"""Random records, and fake adapters that respond as a test needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
import torch
from starlette.testclient import TestClient

from regard.attention.attend import attend
from regard.attention.biases import DenseBias
from regard.attention.masks import Causal, Everything
from regard.attention.scores import Additive, ScaledDot
from regard.attention.windows import LocalP
from regard.inspection.record.build_place import merge_statistics, record_observe, store_qk
from regard.inspection.record.collect import collect
from regard.inspection.record.place import PlaceRecord
from regard.inspection.record.record import GenerationStep, Record
from regard.inspection.record.token_axis import TokenAxis
from regard.page.serve import Limits, make_app
from regard.page.serve.serve_errors import ServeError

HOST = "localhost"
HEADS, WIDTH = 2, 8


def place_of(
    length: int,
    *,
    score: str = "dot",
    causal: bool = False,
    biased: bool = False,
    local: bool = False,
    keep: bool = True,
) -> PlaceRecord:
    torch.manual_seed(length)
    q, k = torch.randn(2, 1, HEADS, length, WIDTH) * 2
    k = k + 3  # so that its centre matters
    attended = attend(
        q,
        k,
        score=Additive(WIDTH, WIDTH) if score == "additive" else ScaledDot(),
        mask=Causal() if causal else Everything(),
        bias=DenseBias(torch.randn(length, length)) if biased else None,
        window=LocalP(WIDTH, half_width=6) if local else None,
        observe=record_observe(length),
    )
    with torch.no_grad():
        stored = store_qk([attended], None) if keep else None
        seen = merge_statistics([attended], stored)
    return PlaceRecord("encoder.0.self", 0, "self", 0, 0, HEADS, seen, stored, "" if keep else "nobody asked for them")


def record_of(*places: PlaceRecord, text: str | None = None) -> Record:
    """A record of one axis, as long as its places."""
    tokens = text.split() if text is not None else [f"w{i}" for i in range(places[0].T)]
    steps = (GenerationStep(0, 7, -0.5, ((7, "w0", -0.5), (8, "w1", float("-inf")))),)
    return Record((TokenAxis.from_tokens("text", tokens),), places, {"model": "random"}, steps)


@dataclass
class Fake:
    """Makes a random record with a token for each word; `meanwhile` runs first."""

    name: str = "fake"
    kind: Literal["translates", "continues", "fills", "reads"] = "reads"
    description: str = "random numbers"
    meanwhile: Callable[[str], object] = lambda text: None
    heard: list[tuple[str, str | None, Sequence[int] | None]] = field(default_factory=list)
    model: torch.nn.Module = field(default_factory=torch.nn.Identity)

    def look(self, text: str, other: str | None = None, *, prefix: Sequence[int] | None = None) -> Record:
        self.heard.append((text, other, prefix))
        self.meanwhile(text)
        words = text.split()[:8] or ["nothing"]
        return record_of(place_of(len(words)), text=" ".join(words))


class Gate:
    """Work that calls torch modules, as a model does, until the test opens the gate."""

    def __init__(self) -> None:
        self.opened, self.entered, self.left = threading.Event(), threading.Event(), threading.Event()
        self._module = torch.nn.Identity()

    def __call__(self, text: str) -> None:
        if text != "slow":
            return
        self.entered.set()
        try:
            while not self.opened.wait(0.005):
                self._module(torch.zeros(1))
        finally:
            self.left.set()


def looked(subject: object, *asked: object, **how: object) -> Record:
    """The record of a fake, or of a real adapter."""
    return subject.look(*asked, **how) if isinstance(subject, Fake) else collect(subject, *asked, **how)


def client_of(
    *subjects: Fake, records: dict[str, Record] | None = None, limits: Limits = Limits(), hosts: Sequence[str] = (HOST,)
) -> TestClient:
    """To be used in a `with`, so that all its requests share a loop."""
    app = make_app(subjects, records or {}, limits, hosts, looked)
    return TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)


def error_of(response: object) -> dict[str, str]:
    """The error of a response, whose shape is checked."""
    body = json.loads(response.content)  # type: ignore[attr-defined]
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "problem", "expected", "where", "advice"}
    assert body["error"]["problem"] and body["error"]["problem"] in body["error"]["message"]
    return body["error"]


@contextmanager
def refused(status: int) -> Iterator[None]:
    """Expects a ServeError with this status."""
    with pytest.raises(ServeError) as caught:
        yield
    assert caught.value.status == status
