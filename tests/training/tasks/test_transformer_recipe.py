"""The recipe of the Transformer: it learns, as published too, with all that the task offers; mistakes are words."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.test_docs import ROOT, blocks
from tests.training.tasks.test_translation import corpus

from regard.decoding import Beam, Greedy
from regard.errors import RegardError
from regard.inspection.alignment.links import translation_links
from regard.models.blocks import SwiGLU
from regard.models.transformer import Transformer
from regard.runs import Run
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.tasks.translation import TranslationRecipe
from regard.training.tasks.translation.models import TransformerModel
from regard.training.train_run import train

SMALL = {"width": 32, "heads": 4, "layers": 2, "feedforward_dim": 64}


def recipe(folder: Path, *sets: str, steps: int = 180, **model: Any) -> TranslationRecipe:
    given = [
        "data.kind=parallel",
        *(f"data.{side}={folder / f'train.{ending}'}" for side, ending in (("source", "en"), ("target", "fr"))),
        "data.valid=0.1",
        *(f"model.{key}={str(value).lower()}" for key, value in {**SMALL, **model}.items()),
        *(
            "batches.tokens=200",
            f"train.steps={steps}",
            "train.threads=1",
            "schedule.warmup=20",
            "optimiser.learning_rate=4e-3",
        ),
        *(f"evaluate.every={steps}", "evaluate.generations=40", f"checkpoint.every={steps}", *sets),
    ]
    found = read_recipe("transformer", given, tasks=TASKS)
    assert isinstance(found, TranslationRecipe)
    return found


def test_it_learns_to_translate_and_to_align(tmp_path: Path) -> None:
    ended = train(recipe(corpus(tmp_path)), tmp_path / "run", notify=lambda text: None)
    assert ended.metrics["perplexity"] < 1.5  # among ten words
    assert ended.metrics["bleu"] > 60
    use = Run.open(tmp_path / "run").translator()
    found = use(["two six nine four", "one ten five"], Beam(3), attention=True)
    assert [best.text for best, *_ in found] == ["deux six neuf quatre", "un dix cinq"]
    assert translation_links(use, found[0][0]) == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_it_learns_as_it_was_published(tmp_path: Path) -> None:
    """Norms after the sum, one vocabulary, dropout, smoothed labels, Noam's schedule, the last weights averaged."""
    sets = [
        *(
            "target_tokenizer=none",
            "objective.label_smoothing=0.1",
            "optimiser.learning_rate=1",
            "optimiser.betas=[0.9, 0.98]",
        ),
        *("schedule.kind=noam", "schedule.width=32", "schedule.warmup=100"),
        *("weight_average.kind=last", "weight_average.count=3", "checkpoint.every=30"),
    ]
    how = {"order": "post", "norm": "layer", "activation": "relu", "positions": "sinusoidal", "dropout": 0.1}
    how |= {"embedding_lr_scale": 1.0, "project": False, "num_sampled": 0}
    train(recipe(corpus(tmp_path), *sets, steps=300, **how), tmp_path / "run", notify=lambda text: None)
    use = Run.open(tmp_path / "run").translator()
    [[best]] = use(["two six nine four"], Greedy())
    assert best.text == "deux six neuf quatre"
    assert use.model.embedding is use.model.encoder.embedding


def test_a_recipe_says_what_it_is_made_of(tmp_path: Path) -> None:
    how = {"order": "pre", "norm": "rms", "activation": "swiglu", "positions": "rotary", "key_heads": 2, "bias": False}
    train(recipe(corpus(tmp_path), steps=2, attention_dropout=0.1, **how), tmp_path / "run", notify=lambda text: None)
    model = Run.open(tmp_path / "run").model()
    assert isinstance(model, Transformer)
    block = model.decoder[1]
    assert isinstance(block.feed, SwiGLU) and isinstance(model.final_norm, torch.nn.RMSNorm)
    assert block.after_feed.order == "pre" and block.self.rotary is not None and model.embedding.positions is None
    assert block.self.project.key_heads == block.cross.project.key_heads == 2 and block.cross.out.bias is None
    assert block.self.dropout == 0.1 and len(model.encoder.blocks) == 2


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["model.heads=5"], "5 heads for a width of 32"),
        (["model.key_heads=3"], "3 key heads, expected a divisor of the 4 query heads"),
        (["model.alignment_layer=2"], "alignment_layer=2, expected one of the 2 decoder blocks"),
        (["model.positions=rotary", "model.heads=32"], "an even width"),
        (["model.positions=learnt"], "sinusoidal"),
        (["model.encoder_dim=8"], "encoder_dim"),
        (["model.embedding_lr_scale=0"], "embedding_lr_scale"),
    ],
)
def test_mistakes_are_answered_in_words(sets: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=said):
        recipe(corpus(tmp_path), *sets).prepare(tmp_path / "run")


def test_the_book_builds_what_it_says() -> None:
    with torch.device("meta"):
        names: dict[str, Any] = {}
        exec(blocks("docs/transformer.md", "The formula"), names)
    assert round(sum(one.numel() for one in names["base"].parameters()), -6) == 63_000_000
    assert names["modern"].decoder[0].cross.project.key_heads == 2


def test_the_recipe_of_the_book_is_the_papers(tmp_path: Path) -> None:
    [toml] = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "transformer.md").read_text("utf-8"), re.S)
    (tmp_path / "base.toml").write_text(toml)
    found = read_recipe(tmp_path / "base.toml", tasks=TASKS)
    assert isinstance(found, TranslationRecipe) and isinstance(found.model, TransformerModel)
    model = found.model
    assert (model.layers, model.width, model.heads, model.feedforward_dim, model.dropout) == (6, 512, 8, 2048, 0.1)
    assert (model.order, found.objective.label_smoothing, found.target_tokenizer) == ("post", 0.1, None)
