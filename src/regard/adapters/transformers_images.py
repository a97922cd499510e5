"""A forward pass of a transformers model over images, and over a text where the model reads one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.adapters.base import ForwardPass, ModelOutput, top_tokens
from regard.adapters.hub_tokenizer import tokenize
from regard.adapters.tensor_inputs import KnownPositions, count_rows, is_even, longest_input
from regard.adapters.vision.images import GivenImage, describe_images
from regard.adapters.vision.layout import IMAGE_IDS, VisionLayout, vision_config
from regard.adapters.vision.preprocess import PixelInputs, colours_of, load_image_processor, pixel_inputs
from regard.adapters.vision.prompt import (
    image_token,
    load_processor,
    mllama_masks,
    plain_prompt,
    processed_prompt,
    text_alone,
)
from regard.errors import RegardError, SettingError
from regard.hub import origin, reason_of

ADVICE = "Give it an image: `regard look MODEL IMAGE [TEXT]`; in Python a path, a uint8 array or a PIL image."


def image_pass(adapter: Any, images: Sequence[GivenImage], text: str | None) -> ForwardPass:
    """A forward pass over these images. A language model reads the text after them, and goes on with it as far as the
    adapter says; a model of two towers reads it beside them."""
    model: Any = adapter.model
    if not reads_images(model):
        advice = "Vision and vision-language models of transformers read them; give this one a text."
        raise SettingError(f"A {type(model).__name__} reads no images", where="look", advice=advice)
    pixels, inputs = _inputs(adapter, images, text)
    titles = [one.title for one in images]
    if not _writes(model) or not adapter.max_new_tokens:
        return _pass(adapter, inputs, pixels, describe_images(images, text), titles, 0)
    before = inputs["input_ids"].size(1)
    longer = _continued(adapter, inputs)
    return _pass(adapter, longer, pixels, describe_images(images, text), titles, longer["input_ids"].size(1) - before)


def expect_text_alone(model: Any) -> None:
    """Refuse a text for a model that reads images alone."""
    if reads_images(model) and "input_ids" not in inspect.signature(model.forward).parameters:
        raise SettingError(f"A {type(model).__name__} reads images, and got a text", where="look", advice=ADVICE)


def reads_images(model: Any) -> bool:
    """Whether a model of transformers takes pixels."""
    return "pixel_values" in inspect.signature(model.forward).parameters


def _inputs(adapter: Any, images: Sequence[GivenImage], text: str | None) -> tuple[PixelInputs, dict[str, Tensor]]:
    """The pixels, and all tensors of a forward pass."""
    model, tokenizer, folder = adapter.model, adapter.tokenizer, origin(adapter.model)
    taken, given = inspect.signature(model.forward).parameters, adapter.processor
    if "input_ids" not in taken:
        pixels = pixel_inputs(model, _image_processor(given, folder), images)
        if model.config.model_type == "vision-encoder-decoder":
            return pixels, pixels.tensors | _decoder_ids(adapter, text)
        if text is not None:
            problem = f"A {type(model).__name__} reads images alone, and got a text too"
            raise SettingError(problem, where="look")
        return pixels, pixels.tensors
    writes, videos = _writes(model), any(one.video for one in images)
    processor, reason = (given, "") if hasattr(given, "image_processor") else load_processor(folder)
    if writes and not videos and processor is not None:
        tensors = _taken(model, processed_prompt(processor, images, text or ""))
        return PixelInputs(tensors, colours_of(processor.image_processor), []), tensors
    pixels = pixel_inputs(model, _image_processor(given, folder), images)
    if not writes:
        alone = {} if text is None else text_alone(model, tokenizer, text)
        if text is None and not hasattr(model, "get_image_features"):
            alone = {"input_ids": torch.tensor([[_first_token(model)]], device=model.device)}
        return pixels, pixels.tensors | alone
    layout = VisionLayout(model, pixels.tensors, colours=pixels.colours)
    kind = model.config.model_type
    if not layout.image_tokens and kind != "mllama":
        problem = f"regard does not know how many tokens of a text an image takes in models of the type {kind}"
        advice = "Pass the tensors that its processor makes: {'input_ids': ..., 'pixel_values': ...}."
        raise SettingError(problem, where="look", advice=advice)
    if text is not None:
        pixels.notes.append(f"No processor of the folder wrote the text{reason}: images come first, no chat template")
    found = plain_prompt(model, tokenizer, layout.image_tokens, images, text)
    if kind == "mllama":
        crops = layout.crops
        tiles = [] if crops is None else [down * across for down, across in crops.tiles.values()]
        most = pixels.tensors["pixel_values"].size(2)
        found["cross_attention_mask"] = mllama_masks(found["input_ids"].cpu(), image_token(model.config), tiles, most)
        found["cross_attention_mask"] = found["cross_attention_mask"].to(model.device)
    return pixels, pixels.tensors | found


def _image_processor(given: Any, folder: Path | None) -> Any:
    """The image processor that was given, alone or in a processor, or that of the folder."""
    return load_image_processor(folder) if given is None else getattr(given, "image_processor", given)


def _pass(
    adapter: Any,
    inputs: Mapping[str, Tensor],
    pixels: PixelInputs,
    title: str,
    titles: Sequence[str],
    new: int,
) -> ForwardPass:
    model = adapter.model
    ids = inputs.get("input_ids", inputs.get("decoder_input_ids"))
    rows = 1 if ids is not None else count_rows(inputs)
    layout = VisionLayout(model, inputs, 0, 1, pixels.colours, titles, list(pixels.notes))
    known = KnownPositions(model, inputs, layout, adapter.tokenizer)

    def forward() -> ModelOutput:
        output = _run(model, inputs, new)
        logits = getattr(output, "logits", None)
        facts: dict[str, Any] = {}
        target: Tensor | None = None
        if isinstance(logits, Tensor) and logits.dim() == 2 and "input_ids" not in inputs:
            target, facts = adapter._class_target(logits[0]), adapter._class_facts(logits[0])
        elif isinstance(logits, Tensor) and logits.dim() == 3 and ids is not None:
            target, facts = _next_token(adapter, logits[0], ids[0], new)
        facts |= {"inputs": title, "kind": "reads"}
        even = is_even(inputs, rows) and ids is None
        return ModelOutput(
            (),
            target,
            facts=facts,
            rows=(1,),
            even=even,
            known_axis=known.axis,
            pictures=layout.pictures,
            notes=layout.notes,
        )

    return ForwardPass(max(longest_input(inputs), _patches(inputs)), forward)


def _next_token(adapter: Any, logits: Tensor, ids: Tensor, new: int) -> tuple[Tensor, dict[str, Any]]:
    """ln p of the generated tokens, or of the most likely next one, which the facts tell."""
    logs = logits[-new - 1 :].float().log_softmax(-1)
    if new:
        return logs[:-1].gather(1, ids[-new:].unsqueeze(-1)).sum(), {}
    facts = {} if adapter.tokenizer is None else {"next": top_tokens(logs[-1], adapter.label)}
    return logs[-1].max(), facts


def _run(model: Any, inputs: Mapping[str, Tensor], new: int) -> Any:
    """The output of a model; whatever it raises becomes a sentence. Logits of the last positions are enough, and of an
    image with thousands of tokens all would be gigabytes."""
    taken = inspect.signature(model.forward).parameters
    more: dict[str, Any] = {"use_cache": False} if "use_cache" in taken else {}
    more |= {"logits_to_keep": new + 1} if "logits_to_keep" in taken else {}
    if "interpolate_pos_encoding" in taken and _other_size(model, inputs):
        more["interpolate_pos_encoding"] = True
    run = model
    if "input_ids" in taken and not any(name in inputs for name in ("input_ids", "decoder_input_ids")):
        run, more = model.get_image_features, {}
    try:
        return run(**inputs, **more)
    except RegardError:
        raise
    except Exception as error:  # models of transformers raise errors of every kind
        problem = f"transformers' {type(model).__name__} cannot run on these images ({reason_of(error)})"
        raise SettingError(problem, where="look") from error


def _other_size(model: Any, inputs: Mapping[str, Tensor]) -> bool:
    """Whether images have another size than the positions of the encoder were learned for."""
    size, pixels = getattr(vision_config(model), "image_size", None), inputs.get("pixel_values")
    sides = (size, size) if isinstance(size, int) else tuple(size or ())
    return pixels is not None and pixels.dim() == 4 and len(sides) == 2 and tuple(pixels.shape[-2:]) != sides


def _continued(adapter: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs with the tokens that the model writes after them."""
    written = adapter._generate(adapter.max_new_tokens, **inputs)
    length, more = inputs["input_ids"].size(1), written.size(1) - inputs["input_ids"].size(1)
    if more < 0 or not torch.equal(written[:, :length], inputs["input_ids"]):
        problem = f"A {type(adapter.model).__name__} gives the words that it writes without those before them"
        raise SettingError(problem, where="look", advice="Look without --max-new-tokens.")
    longer = dict(inputs)
    longer["input_ids"] = written
    for name in ("attention_mask", "mm_token_type_ids", "token_type_ids"):
        if name in inputs:
            new = inputs[name].new_full((1, more), int(name == "attention_mask"))
            longer[name] = torch.cat((inputs[name], new), 1)
    if "cross_attention_mask" in inputs:
        last = inputs["cross_attention_mask"][:, -1:]
        longer["cross_attention_mask"] = torch.cat((inputs["cross_attention_mask"], last.expand(-1, more, -1, -1)), 1)
    return longer


def _writes(model: Any) -> bool:
    """Whether images stand in the text of a language model, rather than beside a text that another tower reads."""
    config = model.config
    has_place = any(isinstance(getattr(config, name, None), int) for name in IMAGE_IDS)
    return has_place and hasattr(config, "text_config") and config.model_type != "blip"


def _decoder_ids(adapter: Any, text: str | None) -> dict[str, Tensor]:
    """What the decoder of an image captioner reads: its first token, and a text."""
    config, model = adapter.model.config, adapter.model
    each = [
        getattr(one, name, None)
        for name in ("decoder_start_token_id", "bos_token_id")
        for one in (config, config.decoder)
    ]
    start = next((one for one in each if isinstance(one, int)), 0)
    ids: list[int] = []
    if text is not None:
        adapter._expect_tokenizer("look")
        ids = list(tokenize(adapter.tokenizer, text, add_special_tokens=False)["input_ids"])
    return {"decoder_input_ids": torch.tensor([[start, *ids]], device=model.device)}


def _first_token(model: Any) -> int:
    """The token that a text begins with."""
    config = model.config.get_text_config()
    found = getattr(config, "bos_token_id", None)
    return found if isinstance(found, int) else 0


def _taken(model: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    taken = inspect.signature(model.forward).parameters
    return {name: one.to(model.device) for name, one in tensors.items() if name in taken}


def _patches(inputs: Mapping[str, Tensor]) -> int:
    """The patches of packed images, which are one sequence."""
    return max(
        (len(one) for name, one in inputs.items() if name.startswith("pixel_values") and one.dim() == 2), default=1
    )
