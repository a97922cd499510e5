"""Models of ours as CTranslate2 describes its own: a GPT is a decoder, a Transformer is an encoder and a decoder."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from ctranslate2.specs import transformer_spec as theirs  # type: ignore[import-untyped]
from torch import nn

from regard.attention.layers import DecoderBlock
from regard.attention.positions import Learned, Sinusoidal
from regard.exports.ctranslate2.layers import Make, activation, array, epsilon, identity, layer, linear, norm
from regard.exports.ctranslate2.vocabulary import Vocabularies
from regard.hub import built
from regard.models import GPT, Transformer

REACH = 4096  # places for which sinusoids are written; CTranslate2 refuses texts that are longer, in words


def specification(model: GPT | Transformer, words: Vocabularies) -> Any:
    """The whole of a model, to be saved."""
    return _generator(model, words) if isinstance(model, GPT) else _translator(model, words)


def _generator(model: GPT, words: Vocabularies) -> Any:
    decoder = theirs.TransformerDecoderSpec(0, with_encoder_attention=False, **_shape(model.decoder, "pre"))
    decoder.embeddings.weight = array(model.embedding.weight)
    decoder.scale_embeddings = 1.0
    make = partial(theirs.TransformerDecoderLayerSpec, with_encoder_attention=False)
    _stack(decoder, model.decoder, make, model.positions)
    norm(decoder.layer_norm, model.norm)
    said = model.embedding if model.output is None else model.output
    assert isinstance(said, nn.Embedding | nn.Linear)
    decoder.projection.weight = array(said.weight)
    spec = theirs.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(words.target)
    _configure(spec.config, words, epsilon(built(model.decoder).after_self.norm))
    return spec


def _translator(model: Transformer, words: Vocabularies) -> Any:
    order = built(model.decoder).after_self.order
    encoder = theirs.TransformerEncoderSpec(0, **_shape(model.encoder.blocks, order))
    decoder = theirs.TransformerDecoderSpec(
        0, project_in_out=model.output.project is not None, **_shape(model.decoder, order)
    )
    for spec, embedded, embeddings in (
        (encoder, model.encoder.embedded, encoder.embeddings[0]),
        (decoder, model.embedded, decoder.embeddings),
    ):
        embeddings.weight = array(embedded.tokens.weight)
        spec.scale_embeddings = float(embedded.scale)
    _stack(encoder, model.encoder.blocks, theirs.TransformerEncoderLayerSpec, model.encoder.embedded.positions)
    _stack(decoder, model.decoder, theirs.TransformerDecoderLayerSpec, model.embedded.positions)
    if order == "pre":
        norm(encoder.layer_norm, model.encoder.last)
        norm(decoder.layer_norm, model.last)
    _say(decoder, model)
    spec = theirs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(words.source)
    spec.register_target_vocabulary(words.target)
    _configure(spec.config, words, epsilon(built(model.decoder).after_self.norm))
    spec.config.decoder_start_token, spec.config.add_source_eos = words.start, True
    return spec


def _shape(blocks: nn.ModuleList, order: str) -> dict[str, Any]:
    first = built(blocks)
    return {
        "num_heads": first.self.project.heads,
        "pre_norm": order == "pre",
        "activation": activation(first),
        "rms_norm": isinstance(first.after_self.norm, nn.RMSNorm),
    }


def _stack(spec: Any, blocks: nn.ModuleList, make: Make, added: nn.Module | None) -> None:
    """All layers, and the positions that are added below the first."""
    spec.layer = [layer(block, make) for block in blocks]
    if added is None:
        return
    spec.position_encodings.encodings = _table(added)
    first = built(blocks)
    if first.self.rotary is not None:
        plain = partial(make, external_pre_post_encoder_layers=True) if isinstance(first, DecoderBlock) else make
        spec.layer.insert(0, identity(plain, first.self.dim, first.self.project.heads))


def _table(added: nn.Module) -> np.ndarray:
    if isinstance(added, Learned):
        return array(added.table.weight)
    assert isinstance(added, Sinusoidal)
    return array(added.table(torch.arange(REACH)))


def _say(decoder: Any, model: Transformer) -> None:
    """The softmax, and the heads whose attention CTranslate2 tells: those that we tell, all of one layer."""
    if model.output.project is not None:
        del decoder.project_in
        assert isinstance(model.output.project, nn.Linear)
        linear(decoder.project_out, model.output.project)
    if model.output.gain != 1.0:
        decoder.scale_outputs = float(model.output.gain)
    decoder.projection.weight, decoder.projection.bias = array(model.output.weight), array(model.output.bias)
    decoder.alignment_layer = np.int16(model.looks if model.looks < 0 else model.looks - len(model.decoder))
    decoder.alignment_heads = np.int16(0)


def _configure(config: Any, words: Vocabularies, eps: float) -> None:
    config.bos_token, config.eos_token, config.unk_token = words.start, words.end, words.unknown
    config.layer_norm_epsilon = eps
