"""Pictures put to our image models: axes with their patches, captions as given or generated, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.adapters import CaptionerAdapter, ImageClassifierAdapter, PhrasePointerAdapter, adapter
from regard.errors import SettingError
from regard.inspection import collect
from regard.models.config import (
    GPTConfig,
    ImageClassifierConfig,
    PhrasePointerConfig,
    RecurrentCaptionerConfig,
    TransformerCaptionerConfig,
)
from regard.pictures import SceneCorpus, captioned
from regard.text import Tokenizer, WordLevel

EXAMPLES = list(SceneCorpus(captioned, 12))
TOKENIZER = Tokenizer.train(WordLevel(100), [one.caption.text for one in EXAMPLES])
SMALL = {"size": 32, "width": 16, "layers": 1, "heads": 2, "patch": 8}
SIZES = {**SMALL, "vocabulary": len(TOKENIZER)}
RECURRENT = RecurrentCaptionerConfig(word_dim=6, hidden=8, attention_dim=5, **SIZES)
VIT = {"encoder": "vit", "registers": 2}


def built(config) -> torch.nn.Module:
    torch.manual_seed(0)
    return config.build().eval()


def picture() -> np.ndarray:
    """64 high and 96 wide: the middle of it is what the models are given."""
    return np.concatenate([EXAMPLES[0].scene.draw()[:, 16:48], EXAMPLES[1].scene.draw()], 1)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (RECURRENT, CaptionerAdapter),
        (TransformerCaptionerConfig(**SIZES), CaptionerAdapter),
        (ImageClassifierConfig(classes=3, **SMALL), ImageClassifierAdapter),
        (PhrasePointerConfig(**SIZES), PhrasePointerAdapter),
    ],
)
def test_each_model_gets_its_adapter(config, kind: type) -> None:
    found = adapter(built(config), TOKENIZER)
    assert type(found) is kind
    with pytest.raises(SettingError, match="looks at pictures, and got a text"):
        found.prepare("a text")


def test_the_words_of_a_caption_look_at_the_patches() -> None:
    model, text = built(RECURRENT), EXAMPLES[0].caption.text
    record = collect(adapter(model, TOKENIZER), picture(), text)
    [place] = record.places
    words, patches = record.axes[place.queries], record.axes[place.keys]
    assert (place.kind, words.tokens[:-1], patches.tokens[:2]) == (
        "cross",
        tuple(text.split()),
        ("patch 0,0", "patch 0,1"),
    )
    [grid], [shown] = patches.grids, record.pictures
    assert (grid.rows, grid.cols) == (4, 4) and grid.box == pytest.approx((1 / 6, 0, 5 / 6, 1))
    assert np.array_equal(shown.pixels(), picture())
    ids = torch.tensor([[TOKENIZER.special.need("start"), *TOKENIZER.encode(text).ids]])
    pixels = adapter(model, TOKENIZER).pixels(picture())
    with torch.no_grad():
        logs, weights = model(pixels, ids, weights=True)
    steps = [step.log_prob for step in record.steps]
    expected = logs.log_probs()[0].gather(1, torch.tensor([[*ids[0, 1:], TOKENIZER.special.need("end")]]).mT).squeeze(1)
    torch.testing.assert_close(torch.tensor(steps), expected)
    tile = place.tile(0, torch.arange(len(words)), torch.arange(len(patches)))
    torch.testing.assert_close(torch.as_tensor(tile).float().reshape(weights[0].shape), weights[0], atol=2e-3, rtol=0)


def test_without_a_caption_the_model_writes_its_own() -> None:
    found = adapter(built(RECURRENT), TOKENIZER)
    record = collect(found, picture())
    again = collect(found, picture(), prefix=[step.token for step in record.steps])
    assert [step.token for step in again.steps] == [step.token for step in record.steps]


def test_registers_and_class_token_are_no_patches() -> None:
    record = collect(adapter(built(ImageClassifierConfig(classes=3, **SMALL, **VIT))), picture())
    [axis] = record.axes
    assert axis.tokens[:4] == ("[CLS]", "[REG1]", "[REG2]", "patch 0,0") and len(axis) == 3 + 16
    assert axis.grids[0].tokens[0, 0] == 3 and sum(share for _, share in record.facts["classes"]) == pytest.approx(1)
    config = TransformerCaptionerConfig(**SIZES, **VIT)
    record = collect(adapter(built(config), TOKENIZER), picture(), "the small red circle")
    sizes = {place.name: (len(record.axes[place.queries]), len(record.axes[place.keys])) for place in record.places}
    assert sizes["encoder.blocks.0.self"] == (19, 19) and sizes["decoder.1.cross"] == (5, 16)
    assert all(axis.grids for axis in record.axes if "patch 0,0" in axis.tokens)


def test_attention_pooling_has_one_query_and_patches_alone() -> None:
    model = built(ImageClassifierConfig(classes=3, pooling="attention", **{**SMALL, **VIT}))
    record = collect(adapter(model), picture())
    place = next(one for one in record.places if one.name == "pooling")
    assert record.axes[place.queries].tokens == ("query vector",) and len(record.axes[place.keys]) == 16


def test_a_phrase_points_and_needs_words() -> None:
    found = adapter(built(PhrasePointerConfig(**SIZES)), TOKENIZER)
    record = collect(found, picture(), "the red circle")
    place = next(one for one in record.places if one.name == "pointer")
    assert len(record.axes[place.queries]) == 1 and len(record.axes[place.keys]) == 16
    with pytest.raises(SettingError, match="A phrase pointer needs a phrase beside the picture"):
        collect(found, picture())
    with pytest.raises(SettingError, match=r"an array of float64 \(2, 2\), expected uint8"):
        collect(found, np.zeros((2, 2)), "the red circle")
    with pytest.raises(SettingError, match="expected a picture alone"):
        collect(adapter(built(ImageClassifierConfig(classes=3, **SMALL))), picture(), "a text")


def test_a_view_of_a_picture_is_saved(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(picture()).save(tmp_path / "p.png")
    model = built(TransformerCaptionerConfig(**SIZES))
    view = regard.look(model, tmp_path / "p.png", "the small red circle", tokenizer=TOKENIZER)
    for name in ("p.html", "p.regard", "p.json", "p.svg"):
        assert view.save(tmp_path / name).stat().st_size > 500
    assert view.measure("gradients")
    same = regard.look(model, picture(), "the small red circle", tokenizer=TOKENIZER)
    assert np.array_equal(same.record.pictures[0].pixels(), view.record.pictures[0].pixels())


def test_a_model_of_text_refuses_a_picture() -> None:
    model = built(GPTConfig(vocabulary=len(TOKENIZER), max_positions=16, layers=1, heads=2, width=8))
    with pytest.raises(SettingError, match="GPT reads no images"):
        collect(adapter(model, TOKENIZER), picture())
