"""Images and texts for transformers' models: several of them, videos, generated words, processors, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from adapters.test_picture_tokens import DARK, changed_tokens, values_of
from adapters.vision_models import FAMILIES, build, silence_encoder
from regard import look
from regard.cli import app
from regard.errors import CorpusError, SettingError
from regard.inspection.record.record import Record

transformers = pytest.importorskip("transformers")
WORDS = "<pad> <s> </s> [UNK] a photo of the cat dog what is this ?".split()
VOCABULARY = {word: at for at, word in enumerate(WORDS)} | {"<image>": 50, "<video>": 51, "<v>": 52, "</v>": 53}
VOCABULARY |= {"<|image|>": 55}


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    engine = Tokenizer(models.WordLevel(VOCABULARY, "[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.post_processor = TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "[UNK]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **special)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def language_axis(record: Record) -> Any:
    """The axis of the last place's keys."""
    return record.axes[record.places[-1].keys]


SEVERAL = {
    "llava": [(32, 32), (32, 32)],
    "llava next": [(64, 32), (32, 64)],
    "qwen2 vl": [(84, 112), (56, 84)],
    "qwen2.5 vl": [(84, 140), (112, 56)],
    "qwen3 vl": [(56, 84), (84, 112)],
    "mllama": [(32, 64), (32, 32)],
    "gemma3": [(32, 32), (32, 32)],
}


@pytest.mark.parametrize("name", SEVERAL)
def test_each_of_several_images_has_its_grids(name: str) -> None:
    """A bright patch in the second image changes the token that its grid names, at the first place of each axis."""
    model, sizes = build(name), SEVERAL[name]
    silence_encoder(model)
    images = [np.full((*size, 3), DARK, np.uint8) for size in sizes]
    dark, before = values_of(model, images)
    axes = {place.keys: place.name for place in reversed(dark.places) if dark.axes[place.keys].grids}
    for axis, place in axes.items():
        grid = dark.axes[axis].grids[-1]
        assert grid.picture == len(dark.pictures) - 1
        left, top, right, bottom = grid.box
        size = sizes[1]
        down, across = (bottom - top) * size[0] / grid.rows, (right - left) * size[1] / grid.cols
        row, col = grid.rows - 1, 0
        rows = slice(*(round(top * size[0] + n * down) for n in (row, row + 1)))
        cols = slice(*(round(left * size[1] + n * across) for n in (col, col + 1)))
        bright = images[1].copy()
        bright[rows, cols] = 220
        _, after = values_of(model, [images[0], bright])
        found, named = changed_tokens(before[place], after[place]), int(grid.tokens[row, col])
        small = [one for one in dark.axes[axis].grids if name == "llava next" and one.picture == grid.picture - 1]
        assert named in found and found - {named} <= {int(token) for one in small for token in one.tokens.ravel()}
        assert dark.axes[axis].tokens[named].endswith(f"patch {row},{col}")


@pytest.mark.parametrize("name", ["qwen2 vl", "qwen2.5 vl", "qwen3 vl"])
def test_each_frame_of_a_video_is_a_picture(name: str) -> None:
    model = build(name)
    silence_encoder(model)
    frames = [np.full((84, 112, 3), DARK, np.uint8) for _ in range(3)]
    dark, before = values_of(model, [frames])
    assert [one.title for one in dark.pictures] == ["frames 1 and 2", "frames 3 and 4"]
    axes = {place.keys: place.name for place in reversed(dark.places)}
    for axis, place in axes.items():
        first, second = dark.axes[axis].grids
        for frame, grid in ((0, first), (1, first), (2, second)):
            side = 84 // grid.rows
            bright = [one.copy() for one in frames]
            bright[frame][side : 2 * side, -side:] = 220
            _, after = values_of(model, [bright])
            named = int(grid.tokens[1, -1])
            assert changed_tokens(before[place], after[place]) == {named}
            label = dark.axes[axis].tokens[named]
            assert label == f"{dark.pictures[grid.picture].title}, patch 1,{grid.cols - 1}"


@pytest.mark.parametrize("name", ["llava", "qwen2.5 vl", "paligemma", "gemma3", "idefics3", "internvl"])
def test_a_text_has_its_words_beside_the_patches(name: str) -> None:
    view = look(build(name), noise(*FAMILIES[name].size), "what is this ?", tokenizer=tokenizer())
    axis = language_axis(view.record)
    assert axis.tokens[-4:] == ("what", "is", "this", "?") and axis.grids and axis.text.endswith("what is this ?")
    words = {n for n in range(len(axis)) if axis.words[n] >= 0}
    assert words.isdisjoint({int(token) for grid in axis.grids for token in grid.tokens.ravel()})
    assert view.record.title == "an image: what is this ?" and len(view.record.facts["next"]) == 8


@pytest.mark.parametrize("name", ["llava", "qwen2 vl", "mllama"])
def test_generated_words_follow_the_text(name: str) -> None:
    model = build(name)
    image = noise(*FAMILIES[name].size)
    longer = look(model, image, "what is this ?", tokenizer=tokenizer(), max_new_tokens=3).record
    shorter = look(model, image, "what is this ?", tokenizer=tokenizer()).record
    at = longer.places[-1].queries
    count = len(shorter.axes[shorter.places[-1].queries])
    assert count < len(longer.axes[at]) <= count + 3
    assert longer.axes[at].tokens[:count] == shorter.axes[shorter.places[-1].queries].tokens


def test_cross_attention_goes_from_words_to_patches() -> None:
    for name in ("blip", "mllama"):
        record = look(build(name), noise(*FAMILIES[name].size), "a photo", tokenizer=tokenizer()).record
        place = next(one for one in record.places if one.kind == "cross")
        assert record.axes[place.queries].tokens[-2:] == ("a", "photo") and record.axes[place.keys].grids


def test_an_image_captioner_of_two_models() -> None:
    encoder = transformers.ViTConfig(**FAMILIES["vit"].config)
    words = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 60, "bos_token_id": 1, "eos_token_id": 2}
    decoder = transformers.GPT2Config(**words, add_cross_attention=True, is_decoder=True)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = transformers.VisionEncoderDecoderModel(config).eval()
    record = look(model, noise(32, 32), "a cat", tokenizer=tokenizer()).record
    place = next(one for one in record.places if one.kind == "cross")
    assert record.axes[place.queries].tokens == ("<s>", "a", "cat")
    assert record.axes[place.keys].tokens[:2] == ("[CLS]", "patch 0,0") and record.axes[place.keys].grids


def test_the_image_processor_of_the_folder_is_used(tmp_path: Path) -> None:
    model = build("vit")
    model.save_pretrained(tmp_path / "model")
    size, crop = {"height": 48, "width": 32}, {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.9, 0.8, 0.7]}
    transformers.ViTImageProcessorPil(size=size, **crop).save_pretrained(tmp_path / "model")
    Image.fromarray(noise(60, 50)).save(tmp_path / "noise.png")
    record = look(tmp_path / "model", tmp_path / "noise.png").record
    [picture] = record.pictures
    assert (picture.width, picture.height, picture.title) == (32, 48, "noise.png") and "notes" not in record.facts
    expected = Image.fromarray(noise(60, 50)).resize((32, 48), Image.Resampling.BILINEAR)
    assert np.abs(picture.pixels().astype(int) - np.asarray(expected).astype(int)).max() <= 1
    assert (record.axes[0].grids[0].rows, record.axes[0].grids[0].cols) == (6, 4)


def test_a_processor_can_be_given() -> None:
    processor = transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    record = look(build("vit"), noise(40, 40), tokenizer=processor).record
    assert record.axes[0].grids[0].tokens.shape == (2, 2) and "notes" not in record.facts


CHAT = (
    "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<image> {% else %}{{ c['text'] }} ?"
    "{% endif %}{% endfor %}{% endfor %}"
)


def test_the_processor_of_the_folder_writes_the_text(tmp_path: Path) -> None:
    words = tokenizer()
    words.add_tokens(["<image>"], special_tokens=True)
    square = {"height": 32, "width": 32}
    pixels = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square)
    how = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    processor = transformers.LlavaProcessor(pixels, words, image_token="<image>", chat_template=CHAT, **how)
    build("llava").save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    record = look(tmp_path, noise(40, 50), "what is this").record
    axis = language_axis(record)
    assert axis.tokens[-4:] == ("what", "is", "this", "?") and axis.grids[0].tokens.shape == (4, 4)
    assert record.notes == []
    plain = look(build("llava"), noise(40, 50), "what is this", tokenizer=tokenizer()).record
    assert any("no chat template" in note for note in plain.notes)


def test_tensors_have_grids_and_pictures_too() -> None:
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    record = look(build("vit"), {"pixel_values": pixels}, row=1).record
    [grid] = record.axes[0].grids
    assert (grid.picture, grid.rows, len(record.pictures)) == (0, 4, 1)
    expected = ((pixels[1] * 0.5 + 0.5) * 255).round().clamp(0, 255).permute(1, 2, 0).numpy()
    assert np.array_equal(record.pictures[0].pixels(), expected)


def test_tokens_of_images_that_do_not_fit_have_no_grid() -> None:
    """Half of them are cut off, as of a text that was cut: no grid, and a note."""
    model = build("blip")
    ids = torch.tensor([[1, 5, 6, 7]])
    record = look(model, {"input_ids": ids, "pixel_values": torch.zeros(1, 3, 32, 32)}).record
    assert not record.axes[record.places[-1].queries].grids
    yolos = transformers.YolosConfig(**{**FAMILIES["vit"].config, "num_detection_tokens": 3, "image_size": [32, 32]})
    found = look(transformers.YolosModel(yolos).eval(), {"pixel_values": torch.zeros(1, 3, 32, 32)}).record
    assert not any(axis.grids for axis in found.axes) and not found.pictures


def test_an_encoder_that_no_test_knows_has_names_and_a_note() -> None:
    config = transformers.DPTConfig(**FAMILIES["vit"].config, is_hybrid=False)
    record = look(transformers.DPTModel(config).eval(), {"pixel_values": torch.zeros(1, 3, 32, 32)}).record
    assert record.axes[0].tokens[1] == "0,0" and not record.axes[0].grids and not record.pictures
    [note] = record.notes
    assert note == "The patches have no grid: no test has found their order in encoders of the type dpt"


def test_a_batch_of_texts_with_images_has_no_grid_in_the_text() -> None:
    ids = torch.tensor([[1, *[50] * 16, 5], [1, *[50] * 16, 6]])
    inputs = {"input_ids": ids, "pixel_values": torch.zeros(2, 3, 32, 32)}
    record = look(build("llava"), inputs, row=1).record
    assert not language_axis(record).grids and any("belong to several texts" in note for note in record.notes)
    assert record.axes[record.places[0].keys].grids[0].rows == 4


REFUSED = {
    "text for pictures alone": ("vit", (noise(8, 8), "a text"), "reads images alone, and got a text too"),
    "text without picture": ("vit", ("a text",), "A ViTModel reads images, and got a text"),
    "text of two towers without picture": ("clip", ("a text",), "cannot run on this text .*Give it an image"),
    "text without tokenizer": ("llava", (noise(32, 32), "a text"), "This model has no tokenizer"),
    "no image": ("vit", ([],), "The list of images is empty"),
    "an array of floats": ("vit", (np.zeros((4, 4, 3)),), r"an array of float64 \(4, 4, 3\), expected uint8"),
    "a bare tensor": ("vit", (torch.zeros(1, 3, 32, 32),), "got a Tensor, expected a text, an image"),
    "a video": ("llava", ([np.zeros((2, 32, 32, 3), np.uint8)],), "is given videos only as tensors"),
    "a video and an image": (
        "qwen2 vl",
        ([np.zeros((2, 56, 56, 3), np.uint8), noise(56, 56)],),
        "Images and videos together",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_looked_at_is_refused(case: str) -> None:
    name, given, sentence = REFUSED[case]
    with pytest.raises(SettingError, match=sentence):
        look(build(name), *given, tokenizer=tokenizer() if name == "clip" else None)


def test_models_of_text_refuse_images(tmp_path: Path) -> None:
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
    ).eval()
    with pytest.raises(SettingError, match="A BertModel reads no images"):
        look(bert, noise(8, 8), tokenizer=tokenizer())
    with pytest.raises(CorpusError, match=r"cat\.png: File not found"):
        look(build("vit"), "cat.png")


def test_queries_of_a_q_former_are_no_patches() -> None:
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 60}
    config = transformers.Blip2Config(
        vision_config=dict(FAMILIES["vit"].config),
        qformer_config={**small, "intermediate_size": 16, "encoder_hidden_size": 16},
        text_config={**small, "model_type": "opt", "ffn_dim": 16, "word_embed_proj_dim": 16},
        image_token_index=50,
        num_query_tokens=4,
    )
    model = transformers.Blip2ForConditionalGeneration(config).eval()
    with pytest.raises(SettingError, match=r"does not know how many tokens of a text an image takes .* blip-2"):
        look(model, noise(32, 32))
    ids = torch.tensor([[50, 50, 50, 50, 1, 5]])
    record = look(model, {"pixel_values": torch.zeros(1, 3, 32, 32), "input_ids": ids}).record
    cross = next(place for place in record.places if place.kind == "cross")
    assert cross.T == 4 and record.axes[cross.keys].grids[0].rows == 4
    assert not record.axes[record.places[-1].keys].grids and "have no grid" in record.notes[-1]


def test_the_command_line_takes_images(tmp_path: Path) -> None:
    model = build("llava")
    model.save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    for number in (1, 2):
        Image.fromarray(noise(40, 50, number)).save(tmp_path / f"{number}.jpg")
    page = tmp_path / "page.html"
    first, second = (str(tmp_path / f"{number}.jpg") for number in (1, 2))
    done = CliRunner().invoke(
        app, ["look", str(tmp_path / "model"), first, "what is this ?", "--image", second, "-o", str(page)]
    )
    assert done.exit_code == 0, done.output
    assert "8 heads at 4 places over 34 tokens of 2 pictures of 4 x 4 patches each, 37 tokens of text" in done.output
    assert page.stat().st_size > 10_000
