"""CTranslate2 specifications of models: a GPT is a decoder, a Transformer an encoder and a decoder."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from ctranslate2.specs import transformer_spec as theirs  # type: ignore[import-untyped]
from torch import nn

from regard.attention.layers import DecoderBlock
from regard.attention.positions import Learned, Sinusoidal
from regard.exports.ctranslate2.layers import (
    SpecClass,
    activation_kind,
    block_spec,
    identity_layer,
    norm_eps,
    set_linear,
    set_norm,
    to_array,
)
from regard.exports.ctranslate2.vocabulary import ExportVocabularies
from regard.hub import first_block
from regard.models import GPT, Transformer

MAX_POSITIONS = 4096  # rows of the table of sinusoids; CTranslate2 refuses longer texts with a clear error


def model_spec(model: GPT | Transformer, words: ExportVocabularies) -> Any:
    """The specification of a model, to be saved."""
    return _decoder_spec(model, words) if isinstance(model, GPT) else _encoder_decoder_spec(model, words)


def _decoder_spec(model: GPT, words: ExportVocabularies) -> Any:
    decoder = theirs.TransformerDecoderSpec(0, with_encoder_attention=False, **_shape(model.decoder, "pre"))
    decoder.embeddings.weight = to_array(model.embedding.weight)
    decoder.scale_embeddings = 1.0
    make = partial(theirs.TransformerDecoderLayerSpec, with_encoder_attention=False)
    _set_blocks(decoder, model.decoder, make, model.positions)
    set_norm(decoder.layer_norm, model.final_norm)
    output = model.embedding if model.output is None else model.output
    assert isinstance(output, nn.Embedding | nn.Linear)
    decoder.projection.weight = to_array(output.weight)
    spec = theirs.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(words.target)
    _configure(spec.config, words, norm_eps(first_block(model.decoder).after_self.norm))
    return spec


def _encoder_decoder_spec(model: Transformer, words: ExportVocabularies) -> Any:
    order = first_block(model.decoder).after_self.order
    encoder = theirs.TransformerEncoderSpec(0, **_shape(model.encoder.blocks, order))
    decoder = theirs.TransformerDecoderSpec(
        0, project_in_out=model.output.project is not None, **_shape(model.decoder, order)
    )
    for spec, embedded, embeddings in (
        (encoder, model.encoder.embedding, encoder.embeddings[0]),
        (decoder, model.embedding, decoder.embeddings),
    ):
        embeddings.weight = to_array(embedded.tokens.weight)
        spec.scale_embeddings = float(embedded.scale)
    _set_blocks(encoder, model.encoder.blocks, theirs.TransformerEncoderLayerSpec, model.encoder.embedding.positions)
    _set_blocks(decoder, model.decoder, theirs.TransformerDecoderLayerSpec, model.embedding.positions)
    if order == "pre":
        set_norm(encoder.layer_norm, model.encoder.final_norm)
        set_norm(decoder.layer_norm, model.final_norm)
    _set_output(decoder, model)
    spec = theirs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(words.source)
    spec.register_target_vocabulary(words.target)
    _configure(spec.config, words, norm_eps(first_block(model.decoder).after_self.norm))
    spec.config.decoder_start_token, spec.config.add_source_eos = words.start, True
    return spec


def _shape(blocks: nn.ModuleList, order: str) -> dict[str, Any]:
    first = first_block(blocks)
    return {
        "num_heads": first.self.project.heads,
        "pre_norm": order == "pre",
        "activation": activation_kind(first),
        "rms_norm": isinstance(first.after_self.norm, nn.RMSNorm),
    }


def _set_blocks(spec: Any, blocks: nn.ModuleList, make: SpecClass, added: nn.Module | None) -> None:
    """All layers, and the positions that are added to the embeddings."""
    spec.layer = [block_spec(block, make) for block in blocks]
    if added is None:
        return
    spec.position_encodings.encodings = _position_table(added)
    first = first_block(blocks)
    if first.self.rotary is not None:
        plain = partial(make, external_pre_post_encoder_layers=True) if isinstance(first, DecoderBlock) else make
        spec.layer.insert(0, identity_layer(plain, first.self.dim, first.self.project.heads))


def _position_table(added: nn.Module) -> np.ndarray:
    if isinstance(added, Learned):
        return to_array(added.table.weight)
    assert isinstance(added, Sinusoidal)
    return to_array(added.table(torch.arange(MAX_POSITIONS)))


def _set_output(decoder: Any, model: Transformer) -> None:
    """The softmax, and the heads whose attention CTranslate2 reports: all heads of the alignment layer."""
    if model.output.project is not None:
        del decoder.project_in
        assert isinstance(model.output.project, nn.Linear)
        set_linear(decoder.project_out, model.output.project)
    if model.output.scale != 1.0:
        decoder.scale_outputs = float(model.output.scale)
    decoder.projection.weight, decoder.projection.bias = to_array(model.output.weight), to_array(model.output.bias)
    decoder.alignment_layer = np.int16(
        model.alignment_layer if model.alignment_layer < 0 else model.alignment_layer - len(model.decoder)
    )
    decoder.alignment_heads = np.int16(0)


def _configure(config: Any, words: ExportVocabularies, eps: float) -> None:
    config.bos_token, config.eos_token, config.unk_token = words.start, words.end, words.unknown
    config.layer_norm_epsilon = eps
