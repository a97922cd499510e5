"""The task masked and its objective: losses by hand, ranks that add up, the unigram guess, documents held out whole."""

from math import exp, log

import numpy as np
import pytest
import torch

from regard.errors import SettingError
from regard.text.batches.seeded_rng import Epoch
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.recipe import PreparedTask, TrainSettings
from regard.training.tasks.masked_lm import (
    BuiltInDocuments,
    DocumentFile,
    MaskedLMBatches,
    MaskedLMModel,
    MaskedLMRecipe,
    MaskingSettings,
)
from regard.training.tasks.tokenizers import SizedTokenizer

SMALL = BuiltInDocuments(examples=30, valid=10)
MODEL = MaskedLMModel(layers=1, width=8, heads=2, dropout=0.0)


def recipe(**sections) -> MaskedLMRecipe:
    return MaskedLMRecipe(
        name="test", **{"data": SMALL, "tokenizer": SizedTokenizer(size=300), "model": MODEL, **sections}
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> PreparedTask:
    made = recipe(train=TrainSettings(prefetch=0)).prepare(tmp_path_factory.mktemp("run"))
    made.model.eval()
    return made


def first(made: PreparedTask):
    """A batch of the validation, which begins anew each time."""
    return next(iter(made.valid(0, 1)))


def test_the_loss_is_both_means_together(prepared) -> None:
    objective, model, batch = prepared.objective, prepared.model, first(prepared)
    with torch.no_grad():
        said = model(batch.inputs, batch.lengths, batch.segments, batch.positions)
        sums = objective.measure(model, batch, None).sums
    logs, follow = said.logits.double().log_softmax(-1), said.next_sentence.double().log_softmax(-1)
    words = -sum(float(logs[at, target]) for at, target in enumerate(batch.targets.tolist()))
    pairs = -sum(float(follow[at, target]) for at, target in enumerate(batch.next.tolist()))
    total = objective.loss(model, batch, None).total.item()
    assert total == pytest.approx(words + objective.pair_weight * pairs, rel=1e-5)
    assert 1 < objective.pair_weight < 15  # hidden tokens a pair, on average
    found = objective.summary(sums)
    assert set(found) == set(objective.metrics)
    assert found["loss"] == pytest.approx(words / batch.tokens + pairs / len(batch), rel=1e-5)
    assert found["perplexity"] == pytest.approx(exp(words / batch.tokens), rel=1e-5)
    right = sum(int(logs[at].argmax() == target) for at, target in enumerate(batch.targets.tolist()))
    assert found["masked_accuracy"] == right / batch.tokens
    guessed = sum(int(follow[at].argmax() == target) for at, target in enumerate(batch.next.tolist()))
    assert found["next_accuracy"] == guessed / len(batch)


def test_the_unigram_guess_is_counted_by_hand(prepared) -> None:
    objective, model, batch = prepared.objective, prepared.model, first(prepared)
    tokenizer = objective.tokenizer
    counts = np.ones(len(tokenizer))
    for ids in tokenizer.ids_batch(list(SMALL.training())):
        for one in ids:
            counts[one] += 1
    with torch.no_grad():
        found = objective.summary(objective.measure(model, batch, None).sums)
    targets = batch.targets.tolist()
    surprise = -sum(log(counts[one] / counts.sum()) for one in targets) / len(targets)
    assert found["unigram_perplexity"] == pytest.approx(exp(surprise), rel=1e-4)
    assert found["unigram_accuracy"] == sum(one == counts.argmax() for one in targets) / len(targets)


@pytest.mark.parametrize("texts", ["pairs", "single"])
def test_ranks_add_up_to_one(texts, tmp_path) -> None:
    asked = recipe(batches=MaskedLMBatches(texts=texts, tokens=1000), train=TrainSettings(prefetch=0))
    whole = asked.prepare(tmp_path)
    parts = [asked.prepare(tmp_path, rank, 3) for rank in range(3)]
    objective, model, batch = whole.objective, whole.model.eval(), next(iter(whole.train))
    shares = [next(iter(part.train)) for part in parts]
    assert sum(map(len, shares)) == len(batch) and {one.all_tokens for one in shares} == {batch.tokens}
    losses = [objective.loss(model, one, None).total for one in shares]
    torch.testing.assert_close(sum(losses), objective.loss(model, batch, None).total)
    assert ("next_accuracy" in objective.metrics) == (texts == "pairs")


@pytest.mark.parametrize("texts", ["pairs", "single"])
def test_it_can_be_trained_and_assembled_again(texts, tmp_path) -> None:
    made = recipe(batches=MaskedLMBatches(texts=texts), objective=MaskingSettings(units="words")).prepare(tmp_path)
    made.objective.loss(made.model, next(iter(made.train)), None).total.backward()
    assert all(one.grad is not None for one in made.model.parameters())
    assembled = made.recipe.assemble(tmp_path)
    for name, weight in made.model.state_dict().items():
        counted = made.objective.unigram if name == "lm_head.bias" else assembled.state_dict()[name]
        assert torch.equal(weight, counted), name
    assert "training sentences" in made.notes[0]
    with torch.no_grad():
        batch = next(iter(made.valid(0, 1)))
        found = made.objective.summary(made.objective.measure(made.model, batch, None).sums)
    assert set(found) == set(made.objective.metrics)


def test_no_rows_give_zero_everywhere(prepared) -> None:
    objective, model = prepared.objective, prepared.model
    empty = prepared.train.collate(np.zeros((0, 6), dtype=np.int64), Epoch(0))
    model.zero_grad()
    total = objective.loss(model, empty, None).total
    total.backward()
    assert total.item() == 0
    assert all(one.grad is not None and not one.grad.any() for one in model.parameters())
    with torch.no_grad():
        sums = objective.measure(model, empty, None).sums
    assert not any(value.any() for value in sums.values())
    assert list(objective.outputs(model, empty)) == [] and np.isnan(objective.summary(sums)["loss"])


def test_what_a_model_says(prepared) -> None:
    objective, model, batch = prepared.objective, prepared.model, first(prepared)
    said = model(batch.inputs, batch.lengths, batch.segments, batch.positions).logits.argmax(-1)
    outputs = objective.outputs(model, batch)
    assert [one.index for one in outputs] == batch.indices.tolist()
    words = [word for one in outputs for word in one.got.split()]
    assert words == objective.tokenizer.decode_batch([[one] for one in said.tolist()])
    hidden = [word for one in outputs for word in one.expected.split()]
    assert hidden == objective.tokenizer.decode_batch([[one] for one in batch.targets.tolist()])
    assert "[MASK]" in outputs[0].given and "[SEP]" in outputs[0].given


@pytest.mark.parametrize("language", ["english", "french"])
def test_stories_and_reviews_have_their_share(language) -> None:
    alone, mixed = (BuiltInDocuments(language=language, examples=20, reviews=share) for share in (0.0, 0.4))
    stories, both = list(alone.training()), list(mixed.training())
    even = "even though" if language == "english" else "même si"
    assert not any(even in one.lower() for one in stories)
    assert 5 <= sum(even in one.lower() or "but" in one or "mais" in one for one in both) < len(both) / 2


def test_documents_of_a_file_are_held_out_whole(tmp_path) -> None:
    path = tmp_path / "text.txt"
    stories = [f"the {name} sat .\nthe {name} slept .\n" for name in ("cat", "dog", "hen", "owl", "fox")]
    path.write_text("\n".join(stories), encoding="utf-8")
    data = DocumentFile(train=path, valid=0.4)
    assert sorted({line.split()[1] for line in data.training()}) == ["cat", "dog", "hen"]
    made = recipe(data=data, train=TrainSettings(prefetch=0), objective=MaskingSettings(mask_rate=0.0)).prepare(
        tmp_path / "run"
    )
    tokenizer = Tokenizer.load(tmp_path / "run" / "tokenizer.json")
    seen = {word for batch in made.train for row in batch.inputs.tolist() for word in tokenizer.decode(row).split()}
    assert seen == {"the", "cat", "dog", "hen", "sat", "slept", "."}
    assert made.notes[0].startswith("6 training sentences, 4 for validation")
    other = recipe(data=DocumentFile(train=path, valid=path)).prepare(tmp_path / "other")
    assert other.notes[0].startswith("10 training sentences, 10 for validation")
    single = tmp_path / "single.txt"
    single.write_text("one document\nand nothing else\n")
    with pytest.raises(SettingError, match="at least 2, because half the pairs"):
        recipe(data=DocumentFile(train=single, valid=single)).prepare(tmp_path / "single")


def test_it_learns_what_is_hidden_and_what_follows(tmp_path) -> None:
    """Two kinds of stories whose words never meet: a hidden word hangs on those around it, and so does what follows."""
    path = tmp_path / "text.txt"
    kinds = (("a b a b", "b a b a"), ("c d c d", "d c d c"))
    path.write_text("\n\n".join("\n".join(kinds[number % 2]) for number in range(40)), encoding="utf-8")
    small = MaskedLMModel(layers=2, width=32, heads=2, dropout=0.0)
    made = recipe(data=DocumentFile(train=path, valid=path), model=small, train=TrainSettings(prefetch=0)).prepare(
        tmp_path / "run"
    )
    optimiser = torch.optim.AdamW(made.model.parameters(), 3e-3)
    for _ in range(60):
        for batch in made.train:
            optimiser.zero_grad()
            (made.objective.loss(made.model, batch, None).total / batch.tokens).backward()
            optimiser.step()
    with torch.no_grad():
        sums = [made.objective.measure(made.model, batch, None).sums for batch in made.valid(0, 1)]
    found = made.objective.summary({name: sum(one[name] for one in sums) for name in sums[0]})
    assert found["masked_accuracy"] > 0.75 > 0.3 > found["unigram_accuracy"]
    assert found["next_accuracy"] > 0.7  # a false pair may be of one kind too: such cannot be told for sure
