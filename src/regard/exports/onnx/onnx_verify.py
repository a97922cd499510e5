"""Is what a graph says what the model says? Both read the same texts, padded together and alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.adapters import ModelAdapter, adapter, padded
from regard.decoding import Greedy, Rules, Written
from regard.errors import CheckpointError
from regard.exports.atomic_export import Checked
from regard.exports.onnx.export_graph import KINDS, asked
from regard.exports.onnx.sample_inputs import samples
from regard.models import Bert, Seq2Seq
from regard.runs import Run
from regard.text import Tokenizer
from regard.training import Recipe, recorded

TOLERANCE = 1e-4
Said = dict[str, np.ndarray]


def check(run: str | os.PathLike[str], folder: Path) -> Checked:
    """Try the graphs of a folder against the run that they were drawn from; the first difference is an error."""
    opened = Run.open(run)
    return verify(recorded(opened), adapter(opened, attends=False), folder)


@torch.no_grad()
def verify(recipe: Recipe, own: ModelAdapter, folder: Path) -> Checked:
    """The same of a run that is loaded."""
    model, rows = own.model, samples(recipe, own)
    pad = own.tokenizers[0].special.pad or 0
    for first, batch in ((0, rows[:-1]), (len(rows) - 1, rows[-1:])):
        ids, lengths = padded(batch, pad)
        if isinstance(model, Seq2Seq):
            _translated(folder, model, own.tokenizers[-1], ids, lengths, first)
        else:
            _read(folder, model, ids, lengths, first)
    return Checked(len(rows), len(rows))


class Session:
    """A graph that runs: tensors by name in, arrays by name out."""

    def __init__(self, path: Path) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        self.path = path
        with _refused(path):
            self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._outputs = [one.name for one in self._session.get_outputs()]

    def __call__(self, inputs: Said) -> Said:
        with _refused(self.path):
            return dict(zip(self._outputs, self._session.run(None, inputs), strict=True))


def _read(folder: Path, model: nn.Module, ids: Tensor, lengths: Tensor, first: int) -> None:
    _, inputs, outputs = KINDS[type(model)]
    given = {"ids": ids, "lengths": lengths, "segments": _segments(model, lengths, ids.size(1))}
    told = {name: given[name] for name in inputs}
    path = folder / "model.onnx"
    theirs = Session(path)({name: tensor.numpy() for name, tensor in told.items()})
    for name, ours in zip(outputs, asked(model)(*told.values()), strict=True):
        for row, (mine, other) in enumerate(zip(ours.numpy(), theirs[name], strict=True), first + 1):
            _expect_close(mine, other, f"{name} of text {row}", path)
            if name != "states":
                _expect_same_best(mine, other, f"{name} of text {row}", path)


def _segments(model: nn.Module, lengths: Tensor, size: int) -> Tensor:
    """The second half of each text as if it were another one, where the model tells them apart."""
    parts = (part.encoder.embedded.segments for part in model.modules() if isinstance(part, Bert))
    kinds = next((part.num_embeddings for part in parts if part is not None), 1)
    here = torch.arange(size)
    second = (here >= lengths.unsqueeze(-1) // 2) & (here < lengths.unsqueeze(-1))
    return second.long().clamp(max=kinds - 1)


def _translated(folder: Path, model: Seq2Seq, target: Tokenizer, ids: Tensor, lengths: Tensor, first: int) -> None:
    start, end = target.special.need("start"), target.special.need("end")
    rules = Rules(end, 2 * ids.size(1) + 10)
    begun = torch.full((len(ids),), start)
    ours = [best for best, *_ in Greedy()(model, model.start(ids, lengths), begun, rules)]
    theirs = _greedy(folder, {"ids": ids.numpy(), "lengths": lengths.numpy()}, start, rules)
    for row, (mine, (tokens, logs)) in enumerate(zip(ours, theirs, strict=True), first + 1):
        _expect_same_text(mine, tokens, f"a translation of text {row}", folder)
        _expect_close(np.array(mine.log_probs), np.array(logs), f"ln p of the translation of text {row}", folder)


def _greedy(folder: Path, source: Said, start: int, rules: Rules) -> list[tuple[list[int], list[float]]]:
    """The tokens that the two graphs write for each source, and ln p of each, that of the end too."""
    encoder, decoder = Session(folder / "encoder.onnx"), Session(folder / "decoder.onnx")
    state, words = encoder(source), np.full(len(source["ids"]), start)
    written: list[tuple[list[int], list[float]]] = [([], []) for _ in words]
    open_rows = set(range(len(words)))
    for _ in range(rules.longest):
        said = decoder({"word": words, **state})
        words = said["log_probs"].argmax(-1)
        state |= {name: said[f"next_{name}"] for name in state if f"next_{name}" in said}
        for row in sorted(open_rows):
            written[row][1].append(float(said["log_probs"][row, words[row]]))
            if words[row] == rules.end:
                open_rows.discard(row)
            else:
                written[row][0].append(int(words[row]))
        if not open_rows:
            break
    return written


def _expect_close(ours: Any, theirs: Any, what: str, path: Path) -> None:
    difference = float(np.abs(ours - theirs).max(initial=0.0)) if ours.shape == theirs.shape else np.inf
    if not difference <= TOLERANCE:  # nor is NaN
        raise _different(f"{what} that differ by {difference:.2g}", f"at most {TOLERANCE:g}", path)


def _expect_same_best(ours: Any, theirs: Any, what: str, path: Path) -> None:
    """The same choice; of two that are as good as equal, either."""
    chosen = np.take_along_axis(ours, theirs.argmax(-1, keepdims=True), -1)
    if (ours.max(-1, keepdims=True) - chosen > TOLERANCE).any():
        raise _different(f"{what} whose largest is another one", "the same", path)


def _expect_same_text(ours: Written, theirs: list[int], what: str, path: Path) -> None:
    if ours.tokens != theirs:
        both = zip([*ours.tokens, None], [*theirs, None], strict=False)
        at = next(place for place, (mine, other) in enumerate(both, 1) if mine != other)
        raise _different(f"{what} with another token at place {at}", "what the run writes", path)


def _different(came: str, expected: str, path: Path) -> CheckpointError:
    return CheckpointError(came, expected, where=f"{path}", advice="The graph does not say what the run says.")


class _refused:
    """What onnxruntime does not take, as an error of ours."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            first = str(error).splitlines()[0] if str(error) else kind.__name__
            raise CheckpointError(
                f"a graph that onnxruntime refuses ({first})", "one that it runs", where=f"{self.path}"
            ) from error
