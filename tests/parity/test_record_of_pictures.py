"""Records of batches, windows, chunks and shared layers of transformers' models: every tile beside eager weights."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from parity.test_record import tokenizer
from regard import audit, hub
from regard.cli import app
from regard.errors import CaptureWarning, PlaceError, SettingError
from regard.inspection import all_head_statistics
from regard.inspection.record.place import PlaceRecord
from regard.inspection.record.record import Record
from regard.page.payload import pack_payload, unpack_payload
from regard.page.view import look

transformers = pytest.importorskip("transformers")

PICTURE = {"image_size": 32, "patch_size": 8, "num_channels": 3}
WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
ALBERT = {**WIDE, "vocab_size": 50, "embedding_size": 16, "num_hidden_layers": 3}
SHARED = "encoder.albert_layer_groups.0.albert_layers.0.attention"


@pytest.fixture(autouse=True)
def _enabled() -> None:
    hub.enable()


def lively(kind: str, config: Any) -> Any:
    """A model with weights so large that attention is far from uniform."""
    torch.manual_seed(0)
    model = getattr(transformers, kind)._from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.35) if weight.dim() > 1 else weight.add_(0.1 * torch.randn_like(weight))
    return model


def eager_twin(model: Any) -> Any:
    twin = type(model)._from_config(model.config, attn_implementation="eager").eval()
    twin.load_state_dict(model.state_dict())
    return twin


def eager_weights(model: Any, place: str, **inputs: Tensor) -> list[Tensor]:
    """The weights that the module at a place returns, call by call, with eager attention."""
    twin, found = eager_twin(model), list[Tensor]()
    twin.get_submodule(place).register_forward_hook(lambda module, args, output: found.append(output[1]))
    with torch.no_grad():
        twin(**inputs, output_attentions=True)
    return found


def block_diagonal(weights: Tensor) -> Tensor:
    """(n, H, T, S) as (H, n T, n S)."""
    return torch.stack([torch.block_diag(*head) for head in weights.transpose(0, 1)])


def expect_same(place: PlaceRecord, weights: Tensor) -> None:
    """Every tile of a place, and its statistics, are those of the weights (H, T, S)."""
    assert (place.heads, place.T, place.S) == tuple(weights.shape)
    assert weights.amax(-1).mean() > 1.5 * weights[weights > 0].mean()  # far from uniform
    tiles = torch.stack([place.tile(head) for head in range(place.heads)])
    torch.testing.assert_close(tiles, weights, atol=1e-3, rtol=0)
    seen = place.statistics
    torch.testing.assert_close(seen.entropy, torch.special.entr(weights).sum(-1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(seen.received, weights.sum(-2), atol=1e-4, rtol=1e-4)
    count = min(8, place.S)
    best = weights.topk(count).values
    torch.testing.assert_close(seen.top_values[..., :count], best, atol=1e-5, rtol=1e-4)
    known = seen.top_indices >= 0
    at = weights.gather(-1, seen.top_indices.clamp(min=0).long())
    torch.testing.assert_close(at[known], seen.top_values[known], atol=1e-5, rtol=1e-4)
    if max(place.T, place.S) <= 256:
        assert seen.thumbnail is not None
        torch.testing.assert_close(seen.thumbnail, weights, atol=1e-5, rtol=1e-4)


def pictures(rows: int = 2, high: int = 32, wide: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(rows, 3, high, wide, generator=torch.Generator().manual_seed(1))}


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("kind", ["Swin", "Swinv2"])
def test_every_window_of_a_row_is_shown(kind: str, row: int) -> None:
    config = getattr(transformers, f"{kind}Config")(**WINDOWS)
    model = lively(f"{kind}Model", config)
    record = look(model, pictures(), row=row).record
    assert record.facts["row"] == row and record.facts["rows"] == 2 and len(record.places) == 4
    for place in record.places:
        [weights] = eager_weights(model, place.name, **pictures())
        windows = weights.size(0) // 2
        assert windows in (16, 4) and place.joined == "windows" and f"{windows} sequences of one call" in place.note
        expect_same(place, block_diagonal(weights[row * windows : (row + 1) * windows]))
        labels = record.axes[place.keys].tokens
        assert labels[:2] == ("window 0, 0", "window 0, 1") and labels[-1] == f"window {windows - 1}, 15"


@dataclass
class Alone:
    """What a row is when it is alone in its batch."""

    kind: str
    config: dict[str, Any]
    inputs: dict[str, Tensor]


FRAMES = {"pixel_values": torch.randn(2, 2, 3, 32, 32, generator=torch.Generator().manual_seed(2))}
ALONE = {
    "swin": Alone("Swin", WINDOWS, pictures()),
    "timesformer": Alone("Timesformer", {**PICTURE, **WIDE, "num_frames": 2}, FRAMES),
    "vit": Alone("ViT", {**PICTURE, **WIDE}, pictures()),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_row_of_a_batch_equals_that_row_alone(name: str) -> None:
    case = ALONE[name]
    model = lively(f"{case.kind}Model", getattr(transformers, f"{case.kind}Config")(**case.config))
    together = look(model, case.inputs, row=1)
    alone = look(model, {key: one[1:] for key, one in case.inputs.items()}).record
    assert "Row 1 of a batch of 2 (rows are counted from 0)" in repr(together) and "rows" not in alone.facts
    for one, other in zip(together.record.places, alone.places, strict=True):
        for head in range(one.heads):
            torch.testing.assert_close(one.tile(head), other.tile(head), atol=1e-3, rtol=0)
        assert together.record.axes[one.keys].tokens == alone.axes[other.keys].tokens


@pytest.mark.parametrize("kind", ["AlbertForSequenceClassification", "AlbertForMaskedLM"])
def test_an_audit_of_a_shared_layer_is_refused(kind: str) -> None:
    model = lively(kind, transformers.AlbertConfig(**ALBERT))
    with pytest.raises(PlaceError, match="attention attends 3 times in a pass: its layers share it"):
        audit(model, ["the cat sleeps", "a dog ."], tokenizer=tokenizer())


def test_rows_that_the_batch_does_not_have_are_refused() -> None:
    model = lively("ViTModel", transformers.ViTConfig(**PICTURE, **WIDE))
    with pytest.raises(SettingError, match="row 2, expected a row from 0 to 1"):
        look(model, pictures(), row=2)
    with pytest.raises(SettingError, match="row 1, expected row 0, the only one"):
        look(model, pictures(1), row=1)


@pytest.mark.parametrize("row", [0, 1])
def test_every_call_of_a_shared_layer_is_a_place(row: int) -> None:
    model = lively("AlbertModel", transformers.AlbertConfig(**ALBERT))
    ids = torch.randint(5, 50, (2, 7), generator=torch.Generator().manual_seed(3))
    record = look(model, {"input_ids": ids}, row=row).record
    assert [place.name for place in record.places] == [f"{SHARED}, call {n} of 3" for n in (1, 2, 3)]
    assert [place.layer for place in record.places] == [0, 1, 2]
    for place, weights in zip(record.places, eager_weights(model, SHARED, input_ids=ids), strict=True):
        expect_same(place, weights[row])


def test_rollout_goes_through_every_call_of_a_shared_layer() -> None:
    model = lively("AlbertModel", transformers.AlbertConfig(**ALBERT))
    ids = torch.randint(5, 50, (1, 7), generator=torch.Generator().manual_seed(3))
    expected = torch.eye(7)
    for weights in eager_weights(model, SHARED, input_ids=ids):
        expected = (weights[0].mean(0) + torch.eye(7)) / 2 @ expected
    view = look(model, {"input_ids": ids})
    [found] = view.measure("rollout")
    torch.testing.assert_close(torch.from_numpy(found.values), expected, atol=1e-3, rtol=0)
    with pytest.raises(SettingError, match=r"call 1 of 3.*one of several calls"):
        view.measure("gradients")


def vision_tower() -> tuple[Any, dict[str, Tensor]]:
    """Two pictures in one row: 4 x 4 and 4 x 6 patches."""
    sizes = {"depth": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48, "out_hidden_size": 32}
    config = transformers.Qwen2_5_VLConfig(
        vision_config={
            **sizes,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        }
    ).vision_config
    tower = lively("Qwen2_5_VisionTransformerPretrainedModel", config)
    grid = torch.tensor([[1, 4, 4], [1, 4, 6]])
    pixels = torch.randn(40, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(4))
    return tower, {"hidden_states": pixels, "grid_thw": grid}


def test_chunks_of_a_vision_tower_are_one_map() -> None:
    """Windows of 16 pixels in the first layer, one picture a chunk in the second."""
    tower, inputs = vision_tower()
    chunks = eager_chunks(tower, inputs)
    record = look(tower, inputs).record
    assert [len(chunks[place.name]) for place in record.places] == [3, 2]
    for place in record.places:
        blocks = chunks[place.name]
        assert place.joined == "chunks" and f"{len(blocks)} chunks in order" in place.note
        expect_same(place, torch.stack([torch.block_diag(*heads) for heads in zip(*blocks, strict=True)]))
        assert record.axes[place.queries].tokens == tuple(map(str, range(40)))


def eager_chunks(tower: Any, inputs: dict[str, Tensor]) -> dict[str, list[Tensor]]:
    """The weights (H, T, S) of every chunk at every place, from the eager function of transformers itself."""
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as theirs

    twin, found = eager_twin(tower), dict[str, list[Tensor]]()
    paths, eager = {module: path for path, module in twin.named_modules()}, theirs.eager_attention_forward

    def listening(module: Any, *args: Any, **more: Any) -> Any:
        output, weights = eager(module, *args, **more)
        found.setdefault(paths[module], []).append(weights[0])
        return output, weights

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(theirs, "eager_attention_forward", listening)
        twin(**inputs)
    return found


def test_gradients_of_joined_windows_are_those_of_their_weights() -> None:
    config = transformers.SwinConfig(**WINDOWS, num_labels=3)
    model = lively("SwinForImageClassification", config)
    record = look(model, pictures(), row=1, gradient=True).record
    assert record.facts["inputs"] == "pixel_values 2 x 3 x 32 x 32" and len(record.facts["classes"]) == 3
    place, found = record.places[0], dict[str, Tensor]()
    twin = eager_twin(model)

    def keep(module: Any, args: Any, output: Any) -> None:
        output[1].retain_grad()
        found["weights"] = output[1]

    twin.get_submodule(place.name).register_forward_hook(keep)
    logits = twin(**pictures(), output_attentions=True).logits
    logits[1].log_softmax(-1).max().backward()
    gradient = found["weights"].grad
    assert gradient is not None and not gradient[:16].any() and place.joined == "windows"
    for head in range(place.heads):
        for window in (0, 7, 15):
            inside = slice(16 * window, 16 * window + 16)
            own = gradient[16 + window, head]
            torch.testing.assert_close(
                place.gradient(head, inside, inside), own, atol=2e-3 * float(own.abs().max()), rtol=0
            )


def labels(record: Record, place: int) -> tuple[str, ...]:
    """The labels of the keys of a place."""
    return record.axes[record.places[place].keys].tokens


GRID = tuple(f"patch {r},{c}" for r in range(4) for c in range(4))
ENCODERS = {
    "ViT": ({}, ("[CLS]", *GRID)),
    "SiglipVision": ({}, GRID),
    "DeiT": ({}, ("[CLS]", "[DIST]", *GRID)),
    "Dinov2WithRegisters": ({"num_register_tokens": 2}, ("[CLS]", "[register 1]", "[register 2]", *GRID)),
    "Yolos": ({"num_detection_tokens": 3, "image_size": [32, 32]}, tuple(map(str, range(20)))),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_picture_grid_is_certain_or_not_shown(kind: str) -> None:
    """Rows and columns come from the picture and the patch size, the tokens before them from the parameters."""
    more, expected = ENCODERS[kind]
    config = getattr(transformers, f"{kind}Config")(**{**PICTURE, **WIDE, **more})
    record = look(lively(f"{kind}Model", config), pictures()).record
    assert labels(record, 0) == expected and record.title == "pixel_values 2 x 3 x 32 x 32"


def test_a_picture_that_is_not_square() -> None:
    model = lively("ViTModel", transformers.ViTConfig(**PICTURE, **WIDE))
    inputs = {**pictures(1, 16, 48), "interpolate_pos_encoding": True}
    tokens = labels(look(model, inputs).record, 0)
    assert tokens == ("[CLS]", *(f"patch {r},{c}" for r in range(2) for c in range(6)))


def test_windows_of_some_layers_leave_the_order_of_the_others_uncertain() -> None:
    config = transformers.SamVisionConfig(**PICTURE, **WIDE, window_size=2, global_attn_indexes=[1], mlp_dim=48)
    record = look(lively("SamVisionModel", config), pictures()).record
    assert [(place.joined, place.T) for place in record.places] == [("windows", 16), (None, 16)]
    assert labels(record, 0)[4] == "window 1, 0" and labels(record, 1) == tuple(map(str, range(16)))


def test_rows_that_are_packed_into_one_sequence_are_shown_together() -> None:
    config = transformers.PixtralVisionConfig(**PICTURE, **WIDE, head_dim=8)
    view = look(
        lively("PixtralVisionModel", config), {**pictures(), "image_sizes": torch.tensor([[32, 32]] * 2)}, row=1
    )
    assert view.record.notes == ["The 2 rows of the batch are shown together: no place has a sequence for each"]
    assert {(place.T, place.S) for place in view.record.places} == {(32, 32)}
    assert labels(view.record, 0) == tuple(map(str, range(32)))


def test_pictures_are_not_assigned_to_texts_by_their_number_alone() -> None:
    """Four pictures of two texts may be three of one and one of the other."""
    parts = {"text_config": {**WIDE, "vocab_size": 50, "max_position_embeddings": 20, "eos_token_id": 2}}
    config = transformers.CLIPConfig(**parts, vision_config={**PICTURE, **WIDE}, projection_dim=32)
    ids = torch.randint(5, 50, (2, 6), generator=torch.Generator().manual_seed(3))
    record = look(lively("CLIPModel", config), {"input_ids": ids, **pictures(4)}, row=1).record
    picture = record.place("vision_model.encoder.layers.0.self_attn")
    assert picture.T == 4 * 17 and picture.note == "all 4 sequences of the call, for all 2 rows of the batch together"
    assert record.place("text_model.encoder.layers.0.self_attn").T == 6


class Spelling:
    """A tokenizer of transformers, as far as labels need it."""

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"word{number}" for number in ids]


def test_the_text_tower_of_clip_has_tokens_or_positions() -> None:
    parts = {"text_config": {**WIDE, "vocab_size": 50, "max_position_embeddings": 20, "eos_token_id": 2}}
    config = transformers.CLIPConfig(**parts, vision_config={**PICTURE, **WIDE}, projection_dim=32)
    model = lively("CLIPModel", config)
    ids = torch.randint(
        5, 50, (2, 17), generator=torch.Generator().manual_seed(3)
    )  # as many as the picture's positions
    inputs = {"input_ids": ids, **pictures()}
    named = look(model, inputs, tokenizer=Spelling(), row=1).record
    text = next(n for n, place in enumerate(named.places) if place.name.startswith("text"))
    picture = next(n for n, place in enumerate(named.places) if place.name.startswith("vision"))
    assert labels(named, text) == tuple(f"word{number}" for number in ids[1].tolist())
    assert labels(named, picture) == ("[CLS]", *GRID)
    assert labels(look(model, inputs).record, text) == tuple(map(str, range(17)))


def test_pooled_places_have_axes_of_their_own() -> None:
    """Funnel halves the sequence twice; the text keeps its tokens where a place is as long."""
    config = transformers.FunnelConfig(
        vocab_size=50, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48, num_decoder_layers=1
    )
    record = look(lively("FunnelModel", config), "the cat sleeps", "a dog .", tokenizer=tokenizer()).record
    count = len(record.axes[0])
    assert record.axes[0].tokens[:2] == ("[CLS]", "the")
    shapes = [(place.T, place.S) for place in record.places]
    assert shapes[0] == (count, count) == shapes[-1] and shapes[1][0] < count == shapes[1][1]
    pooled = record.places[1]
    assert (pooled.keys, record.axes[pooled.queries].tokens) == (0, tuple(map(str, range(pooled.T))))
    assert len({axis.name for axis in record.axes}) == len(record.axes)
    [text, *_], [means, *_] = (all_head_statistics(record.places[at]) for at in (0, 1))
    assert text.distance is not None and text.same is not None
    assert (means.distance, means.same, means.previous, means.next) == (None,) * 4, "a mean of tokens has no position"
    assert means.entropy > 0 and means.first > 0 and "distance=None" in repr(means)


def test_latents_have_positions() -> None:
    config = transformers.PerceiverConfig(
        num_latents=6,
        d_latents=32,
        d_model=16,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
    )
    inputs = {"inputs": torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(5))}
    record = look(lively("PerceiverModel", config), inputs, row=1).record
    assert [(place.kind, place.T, place.S) for place in record.places] == [
        ("cross", 6, 9),
        ("self", 6, 6),
        ("self", 6, 6),
    ]
    assert labels(record, 0) == tuple(map(str, range(9)))


def test_two_streams_of_one_module_are_two_places() -> None:
    """LiLT attends to text and to layout in one forward pass; they are not chunks of a sequence of twice the length."""
    config = transformers.LiltConfig(**{**WIDE, "hidden_size": 48}, vocab_size=50, channel_shrink_ratio=2)
    inputs = {"input_ids": torch.randint(5, 50, (1, 6)), "bbox": torch.tensor([1, 2, 30, 40]).expand(1, 6, 4)}
    names = [place.name for place in look(lively("LiltModel", config), inputs).record.places]
    assert names[:2] == [f"encoder.layer.0.attention.self, call {n} of 2" for n in (1, 2)] and len(names) == 4


def unheard_model() -> tuple[Any, dict[str, Tensor]]:
    """Attention to segments in the encoder, which is not one softmax a row, beside ordinary attention."""
    config = transformers.PegasusXConfig(
        vocab_size=50,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_global_tokens=4,
        block_size=8,
        max_position_embeddings=64,
    )
    ids = torch.randint(5, 50, (1, 12), generator=torch.Generator().manual_seed(3))
    return lively("PegasusXModel", config), {"input_ids": ids, "decoder_input_ids": ids[:, :5]}


def test_unheard_attention_is_part_of_the_record(tmp_path: Path) -> None:
    model, inputs = unheard_model()
    with pytest.warns(CaptureWarning, match="2 of 4 attention modules were heard"):
        view = look(model, inputs)
    unheard = {f"encoder.layers.{n}.self_attn": "PegasusXGlobalLocalAttention" for n in range(2)}
    note = "2 of 4 attention modules heard; unheard: encoder.layers.0.self_attn (PegasusXGlobalLocalAttention), "
    assert view.record.unheard == unheard and view.record.notes[0].startswith(note) and note in repr(view)
    assert Record.load(view.save(tmp_path / "a.regard")).unheard == unheard
    saved = json.loads(view.save(tmp_path / "a.json").read_text())
    assert saved["unheard"] == unheard and saved["notes"] == view.record.notes
    drawn = view.save(tmp_path / "a.svg").read_text()
    assert (
        escape(note) in drawn and ">2 of 4 attention modules heard; unheard:" in drawn
    )  # in its metadata, and below it
    assert note.encode() in view.save(tmp_path / "a.png").read_bytes()
    header, _ = unpack_payload(pack_payload(view.record))
    assert header["notes"] == view.record.notes


def test_a_model_of_which_nothing_was_heard_is_refused_with_names() -> None:
    config = transformers.LongformerConfig(**WIDE, vocab_size=50, attention_window=4, max_position_embeddings=64)
    model = lively("LongformerModel", config)
    ids = torch.randint(5, 50, (1, 12))
    why = r"None of the 2 attention modules of this LongformerModel could be heard: encoder\.layer\.0\.attention\.self "
    with pytest.warns(CaptureWarning), pytest.raises(PlaceError, match=why):
        look(model, {"input_ids": ids})


def test_blocks_of_a_sparse_encoder_are_named_where_they_are_not_heard() -> None:
    """BigBird adds up several products of parts of one softmax; on short texts its attention is full, and heard."""
    config = transformers.BigBirdConfig(**WIDE, vocab_size=50, block_size=4, num_random_blocks=2)
    config.num_hidden_layers = 1
    model = lively("BigBirdModel", config)
    why = "The only attention module of this BigBirdModel could not be heard: encoder.layer.0.attention.self "
    with pytest.warns(CaptureWarning), pytest.raises(PlaceError, match=re.escape(why)):
        look(model, {"input_ids": torch.randint(5, 50, (1, 64))})
    ids = torch.randint(5, 50, (1, 12))
    [place] = look(model, {"input_ids": ids}).record.places
    model.set_attention_type("original_full")
    [weights] = eager_weights(model, place.name, input_ids=ids)
    expect_same(place, weights[0])


def test_a_hybrid_of_recurrence_and_attention_is_heard_where_it_attends() -> None:
    """A third of RecurrentGemma's layers attend; without one of them there is no attention, and the error says so."""
    sizes = {
        **WIDE,
        "vocab_size": 50,
        "lru_width": 32,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "attention_window_size": 8,
    }
    ids = {"input_ids": torch.randint(5, 50, (1, 6))}
    hybrid = transformers.RecurrentGemmaConfig(**{**sizes, "num_hidden_layers": 3})
    [place] = look(lively("RecurrentGemmaModel", hybrid), ids).record.places
    assert place.name == "layers.2.temporal_block" and place.T == 6
    recurrent = transformers.RecurrentGemmaConfig(**sizes)
    with pytest.raises(PlaceError, match=r"RecurrentGemmaModel: it has no attention.*recurrence or convolution"):
        look(lively("RecurrentGemmaModel", recurrent), ids)


def test_the_command_line_says_what_was_not_heard(tmp_path: Path) -> None:
    config = unheard_model()[0].config
    lively("PegasusXForConditionalGeneration", config).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    given = ["look", str(tmp_path / "model"), "the cat sleeps", "a dog .", "-o", str(tmp_path / "a.html")]
    printed = CliRunner().invoke(app, given)
    note = "2 of 4 attention modules heard; unheard: model.encoder.layers.0.self_attn (PegasusXGlobalLocalAttention), "
    assert printed.exit_code == 0 and f"\n{note}" in printed.stdout
    found = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout.splitlines()[-1])
    assert found["unheard"] == {f"model.encoder.layers.{n}.self_attn": "PegasusXGlobalLocalAttention" for n in range(2)}
    assert found["notes"][0].startswith(note) and {entry["note"] for entry in found["places"]} == {""}
