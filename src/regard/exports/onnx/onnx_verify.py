"""Verification of an ONNX export: graph and model run on the same texts, padded together and alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.adapters import ModelAdapter, adapter, pad_ids
from regard.decoding import Greedy, Hypothesis, Rules
from regard.errors import CheckpointError
from regard.exports.atomic_export import ExportCheck
from regard.exports.onnx.export_graph import KINDS, graph_module
from regard.exports.onnx.sample_inputs import samples
from regard.models import Bert, Seq2Seq
from regard.runs import Run
from regard.text import Tokenizer
from regard.training import Recipe, load_recipe

TOLERANCE = 1e-4
Arrays = dict[str, np.ndarray]


def check(run: str | os.PathLike[str], folder: Path) -> ExportCheck:
    """Compare the graphs of a folder with the run that they were exported from; the first difference is an error."""
    opened = Run.open(run)
    return verify(load_recipe(opened), adapter(opened, require_attention=False), folder)


@torch.no_grad()
def verify(recipe: Recipe, model_adapter: ModelAdapter, folder: Path) -> ExportCheck:
    """The same for a loaded run."""
    model, rows = model_adapter.model, samples(recipe, model_adapter)
    pad = model_adapter.tokenizers[0].special.pad or 0
    for first, batch in ((0, rows[:-1]), (len(rows) - 1, rows[-1:])):
        ids, lengths = pad_ids(batch, pad)
        if isinstance(model, Seq2Seq):
            _verify_translator(folder, model, model_adapter.tokenizers[-1], ids, lengths, first)
        else:
            _verify_model(folder, model, ids, lengths, first)
    return ExportCheck(len(rows), len(rows))


class Session:
    """An onnxruntime session: inputs and outputs are arrays by name."""

    def __init__(self, path: Path) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        self.path = path
        with _onnxruntime_errors(path):
            self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._outputs = [one.name for one in self._session.get_outputs()]

    def __call__(self, inputs: Arrays) -> Arrays:
        with _onnxruntime_errors(self.path):
            return dict(zip(self._outputs, self._session.run(None, inputs), strict=True))


def _verify_model(folder: Path, model: nn.Module, ids: Tensor, lengths: Tensor, first: int) -> None:
    _, inputs, outputs = KINDS[type(model)]
    given = {"ids": ids, "lengths": lengths, "segments": _segments(model, lengths, ids.size(1))}
    used = {name: given[name] for name in inputs}
    path = folder / "model.onnx"
    theirs = Session(path)({name: tensor.numpy() for name, tensor in used.items()})
    for name, ours in zip(outputs, graph_module(model)(*used.values()), strict=True):
        for row, (mine, other) in enumerate(zip(ours.numpy(), theirs[name], strict=True), first + 1):
            _expect_close(mine, other, f"{name} of text {row}", path)
            if name != "states":
                _expect_same_best(mine, other, f"{name} of text {row}", path)


def _segments(model: nn.Module, lengths: Tensor, size: int) -> Tensor:
    """The second half of each text as segment 1, where the model has segments."""
    parts = (part.encoder.embedding.segments for part in model.modules() if isinstance(part, Bert))
    kinds = next((part.num_embeddings for part in parts if part is not None), 1)
    position = torch.arange(size)
    second = (position >= lengths.unsqueeze(-1) // 2) & (position < lengths.unsqueeze(-1))
    return second.long().clamp(max=kinds - 1)


def _verify_translator(
    folder: Path, model: Seq2Seq, target: Tokenizer, ids: Tensor, lengths: Tensor, first: int
) -> None:
    start, end = target.special.need("start"), target.special.need("end")
    rules = Rules(end, 2 * ids.size(1) + 10)
    first_tokens = torch.full((len(ids),), start)
    ours = [best for best, *_ in Greedy()(model, model.start(ids, lengths), first_tokens, rules)]
    theirs = _greedy_onnx(folder, {"ids": ids.numpy(), "lengths": lengths.numpy()}, start, rules)
    for row, (mine, (tokens, logs)) in enumerate(zip(ours, theirs, strict=True), first + 1):
        _expect_same_text(mine, tokens, f"a translation of text {row}", folder)
        _expect_close(np.array(mine.log_probs), np.array(logs), f"ln p of the translation of text {row}", folder)


def _greedy_onnx(folder: Path, source: Arrays, start: int, rules: Rules) -> list[tuple[list[int], list[float]]]:
    """Greedy decoding with the two graphs: the tokens of each source, and ln p of each and of the end."""
    encoder, decoder = Session(folder / "encoder.onnx"), Session(folder / "decoder.onnx")
    state, words = encoder(source), np.full(len(source["ids"]), start)
    found: list[tuple[list[int], list[float]]] = [([], []) for _ in words]
    open_rows = set(range(len(words)))
    for _ in range(rules.max_length):
        outputs = decoder({"word": words, **state})
        words = outputs["log_probs"].argmax(-1)
        state |= {name: outputs[f"next_{name}"] for name in state if f"next_{name}" in outputs}
        for row in sorted(open_rows):
            found[row][1].append(float(outputs["log_probs"][row, words[row]]))
            if words[row] == rules.end:
                open_rows.discard(row)
            else:
                found[row][0].append(int(words[row]))
        if not open_rows:
            break
    return found


def _expect_close(ours: Any, theirs: Any, what: str, path: Path) -> None:
    difference = float(np.abs(ours - theirs).max(initial=0.0)) if ours.shape == theirs.shape else np.inf
    if not difference <= TOLERANCE:  # false for NaN too
        raise _mismatch(f"{what} that differ by {difference:.2g}", f"at most {TOLERANCE:g}", path)


def _expect_same_best(ours: Any, theirs: Any, what: str, path: Path) -> None:
    """The same argmax; of two equal ones, either."""
    chosen = np.take_along_axis(ours, theirs.argmax(-1, keepdims=True), -1)
    if (ours.max(-1, keepdims=True) - chosen > TOLERANCE).any():
        raise _mismatch(f"{what} with another argmax", "the same", path)


def _expect_same_text(ours: Hypothesis, theirs: list[int], what: str, path: Path) -> None:
    if ours.tokens != theirs:
        both = zip([*ours.tokens, None], [*theirs, None], strict=False)
        at = next(place for place, (mine, other) in enumerate(both, 1) if mine != other)
        raise _mismatch(f"{what} with another token at place {at}", "what the run writes", path)


def _mismatch(given: str, expected: str, path: Path) -> CheckpointError:
    return CheckpointError(given, expected, where=f"{path}", advice="The graph and the run disagree.")


class _onnxruntime_errors:
    """Turns errors of onnxruntime into CheckpointErrors."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            first = str(error).splitlines()[0] if str(error) else kind.__name__
            raise CheckpointError(f"onnxruntime cannot run the graph: {first}", where=f"{self.path}") from error
