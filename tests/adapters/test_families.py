"""A record of every family of models: its tokens are those of the text, its weights those of the model."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import nn

import regard
from regard.adapters import adapter
from regard.attention import Observe, capture
from regard.errors import PlaceError, SettingError
from regard.inspection.record.collect import collect
from regard.inspection.record.collector import RecordSpec
from regard.text import Tokenizer
from regard.text.tokenizers.trainers import WordLevel
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

SMALL = ["data.examples=60", "train.steps=2", "evaluate.every=2", "train.threads=1", "train.device=cpu"]
SIZE = ["model.layers=2", "model.width=16", "model.heads=2"]
PAIRS = [*SMALL, "data.valid=4", "batches.tokens=200"]
RECURRENT = [*PAIRS, "model.width=8", "model.encoder_dim=16", "model.hidden=16"]
RUNS = {
    "bahdanau": RECURRENT,
    "luong": RECURRENT,
    "pointer": RECURRENT,
    "transformer": [*PAIRS, *SIZE, "model.feedforward_dim=24"],
    "bert": [*SMALL, "data.valid=10", *SIZE, "model.max_positions=60", "tokenizer.size=300"],
    "classifier": [*SMALL, "data.valid=10", "model.width=8"],
    "gpt": [*SMALL, "data.valid=10", *SIZE],
    "copying-lm": [*SMALL, "data.valid=10", "model.width=8", "model.hidden=8"],
    "seq2seq": RECURRENT,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of all recipes, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    for name, sets in RUNS.items():
        train(read_recipe(name, sets, tasks=TASKS), folder / name, notify=lambda text: None)
    return folder


ENGLISH, FRENCH = "The black cat sleeps .", "Le chat noir dort ."


@pytest.mark.parametrize("name", ["bahdanau", "luong", "pointer", "transformer"])
def test_a_translator_generates_or_is_given_a_translation(runs: Path, name: str) -> None:
    found = adapter(runs / name)
    given = collect(found, ENGLISH, FRENCH)
    source, read, written = given.axes
    assert source.tokens[-1] == written.tokens[-1] == "</s>" and read.tokens[0] == "<s>"
    assert read.tokens[1:] == written.tokens[:-1] and len(read) == len(written) == len(given.steps)
    across = [place for place in given.places if place.kind == "cross"]
    assert across and all((len(written), len(source)) == (place.T, place.S) for place in across)
    for place in given.places:
        weights = place.tile(0)
        assert weights.min() >= 0 and weights.sum(-1).max() < 1.001
    made = collect(found, ENGLISH)
    assert made.steps and all(abs(step.log_prob) < 100 for step in made.steps)
    likeliest = made.steps[0].candidates
    assert [value for *_, value in likeliest] == sorted((value for *_, value in likeliest), reverse=True)


def test_the_weights_of_a_translator_are_those_that_it_reports(runs: Path) -> None:
    found = adapter(runs / "transformer")
    [read] = found.translator.score([(ENGLISH, FRENCH)])
    place = collect(found, ENGLISH, FRENCH).place("decoder.1.cross")
    mean = torch.stack([place.tile(head) for head in range(place.heads)]).mean(0)
    torch.testing.assert_close(mean, read.weights, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_another_prefix_gives_another_translation(runs: Path, name: str) -> None:
    """What follows a word that somebody chose is the likeliest after it."""
    found = adapter(runs / name)
    first = collect(found, ENGLISH)
    other = first.steps[0].candidates[3][0]
    second = collect(found, ENGLISH, prefix=[other])
    assert second.steps[0].token == other
    assert all(step.token == step.candidates[0][0] for step in second.steps[1:-1])


@pytest.mark.parametrize("name", ["gpt", "copying-lm"])
def test_a_language_model_generates(runs: Path, name: str) -> None:
    read = collect(adapter(runs / name), "Laura saw the cat .")
    assert read.steps == () and len(read.axes) == 1
    on = collect(adapter(runs / name, max_new_tokens=5), "Laura saw")
    count = len(collect(adapter(runs / name), "Laura saw").axes[0])
    assert 0 < len(on.steps) <= 5 and len(on.axes[0]) == count + len(on.steps)
    assert [step.at for step in on.steps] == list(range(count, count + len(on.steps)))
    assert all(step.token == step.candidates[0][0] for step in on.steps)
    for place in on.places:
        assert not place.tile(0).triu(1).any()
    empty = collect(adapter(runs / name), "")
    assert len(empty.axes[0]) == 1


def test_a_bert_reads_two_texts_and_fills_masks(runs: Path) -> None:
    found = adapter(runs / "bert")
    assert found.kind == "fills"
    record = collect(found, "The [MASK] cat sleeps .", "It is old .")
    [side] = record.axes
    assert side.tokens[0] == "[CLS]" and side.tokens.count("[SEP]") == 2
    assert side.segments is not None and side.segments[0] == 0 and side.segments[-1] == 1
    assert all(side.text[a:b] == token for token, (a, b) in zip(side.tokens, side.spans, strict=True) if a >= 0)
    assert [step.at for step in record.steps] == [side.tokens.index("[MASK]")]
    with capture(found.model, observe=Observe(weights=True)) as heard:
        collect(found, "The [MASK] cat sleeps .", "It is old .")
    for place in record.places:
        weights = heard[place.name].weights[0]
        for head in range(place.heads):
            torch.testing.assert_close(place.tile(head), weights[head], atol=1e-3, rtol=0)
        assert place.value_norms is not None and place.value_norms.shape == (place.heads, place.S)


def test_a_learned_query_attends_to_the_text(runs: Path) -> None:
    record = collect(adapter(runs / "classifier"), "The film was good .")
    [place] = record.places
    assert (place.T, place.kind, record.axes[place.queries].name) == (1, "cross", "query")


def test_heads_and_places_are_selected(runs: Path) -> None:
    found = adapter(runs / "transformer")
    record = collect(found, ENGLISH, FRENCH, spec=RecordSpec("*.cross", {"decoder.0.cross": [1]}))
    assert [place.name for place in record.places] == ["decoder.0.cross", "decoder.1.cross"]
    first, second = record.places
    assert first.stored is not None and first.stored.heads == (1,)
    assert second.stored is None and second.why == "Statistics only, as requested."


def test_a_model_that_was_loaded_knows_its_tokenizer(runs: Path) -> None:
    record = collect(adapter(regard.load(runs / "bert")), "The cat sleeps .")
    assert record.axes[0].tokens[1] == "The"


def test_unusable_inputs_are_refused(runs: Path) -> None:
    with pytest.raises(PlaceError, match="No attention was captured in this Seq2Seq"):
        collect(adapter(runs / "seq2seq"), ENGLISH)
    with pytest.raises(SettingError, match="one text, but two were given"):
        collect(adapter(runs / "gpt"), "a", "b")
    with pytest.raises(SettingError, match="takes no prefix"):
        collect(adapter(runs / "bert"), "a", prefix=[3])
    for name in ("transformer", "pointer", "gpt"):
        with pytest.raises(SettingError, match=r"token 99999 in a prefix, expected numbers from 0 to"):
            collect(adapter(runs / name), "The cat", prefix=[99999])
    with pytest.raises(SettingError, match=r"no tokenizer.*pass tokenizer="):
        adapter(deepcopy(regard.load(runs / "bert")))  # nobody knows where the copy comes from
    with pytest.raises(SettingError, match=r"at most 60"):
        collect(adapter(runs / "bert"), "cat " * 90)


class Small(nn.Module):
    """Somebody's model, through torch's own attention."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(ids))


class Letters:
    """A tokenizer of somebody else's."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 30 for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(97 + number % 26) for number in ids)


def test_any_other_torch_module() -> None:
    ours = Tokenizer.train(WordLevel(30), ["the cat sleeps", "the dog"])
    for tokenizer in (ours, Letters()):
        record = collect(adapter(Small(40).eval(), tokenizer), "the cat")
        [place] = record.places
        assert place.name == "layer.self_attn" and len(record.axes[0]) == place.T
        torch.testing.assert_close(place.tile(2).sum(-1), torch.ones(place.T), atol=1e-3, rtol=0)
    with pytest.raises(SettingError, match="has no tokenizer"):
        collect(adapter(Small(40)), "the cat")


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("bahdanau", (ENGLISH, FRENCH)),
        ("transformer", (ENGLISH, FRENCH)),
        ("bert", ("The [MASK] cat sleeps .",)),
        ("gpt", ("Laura saw the cat .",)),
        ("classifier", ("The film was good .",)),
    ],
)
def test_gradients_are_those_of_the_weights(runs: Path, name: str, texts: tuple[str, ...], tmp_path: Path) -> None:
    """As measures.gradients finds them, by letting the weights themselves be what the model computes with."""
    from regard.inspection.attribution.gradients import attention_gradients
    from regard.inspection.record.record import Record

    found = adapter(runs / name)
    record = collect(found, *texts, spec=RecordSpec(gradient=True))
    record.save(tmp_path / "a.regard")
    record = Record.load(tmp_path / "a.regard")
    tokens = [step.token for step in record.steps]
    model = found.translator.model if hasattr(found, "translator") else found.model
    expected = attention_gradients(model, lambda: said(found, texts, tokens))
    for place in record.places:
        gradient = expected[place.name][1][0]
        gradient = gradient if gradient.dim() == 3 else gradient.unsqueeze(0)
        for head in range(place.heads):
            seen = place.tile(head) > 0  # a weight that can only be 0 has no gradient to speak of
            got, other = place.gradient(head)[seen], gradient[head][seen]
            torch.testing.assert_close(got, other, atol=2e-3 * float(other.abs().max()), rtol=0)
    with pytest.raises(regard.RegardError, match="has no gradients"):
        collect(found, *texts).places[0].gradient(0)


def said(found, texts: tuple[str, ...], tokens: list[int]) -> torch.Tensor:
    """What a subject's gradients are of, computed another way."""
    special = None if hasattr(found, "translator") else found.tokenizer.special
    if found.kind == "translates":
        one = found.translator
        source = torch.tensor([[*one.source.encode(texts[0]).ids, one.source.special.need("end")]])
        target = [one.target.special.need("start"), *tokens]
        logs = one.model(source, torch.tensor([source.size(1)]), torch.tensor([target[:-1]]))[0].log_probs()[0]
        return sum(logs[at, token] for at, token in enumerate(target[1:]))
    ids = found.tokenizer.encode(texts[0], specials=True).ids
    if found.kind == "continues":
        logs = found.model(torch.tensor([ids])).log_softmax(-1)[0]
        return sum(logs[at, token] for at, token in enumerate(ids[1:]))
    assert special is not None
    row = torch.tensor([[special.need("cls"), *ids, special.need("sep")]])
    lengths = torch.tensor([row.size(1)])
    if found.kind == "reads":
        return found.model(row, lengths).log_softmax(-1).max()
    places = (row[0] == special.need("mask")).nonzero().squeeze(-1)
    return found.model(row, lengths, None, places).logits.log_softmax(-1).max()


def test_gradients_of_a_model_without_outputs_are_refused(runs: Path) -> None:
    with pytest.raises(SettingError, match="no output to take gradients of"):
        collect(adapter(runs / "bert"), "The cat .", spec=RecordSpec(gradient=True))
    ours = Tokenizer.train(WordLevel(30), ["the cat sleeps"])
    with pytest.raises(SettingError, match="no output to take gradients of"):
        collect(adapter(Small(40).eval(), ours), "the cat", spec=RecordSpec(gradient=True))
