"""Which settings of config.json our own models implement: a whitelist for each family.

A checkpoint is converted only if every setting that changes its numbers is known here. `unsupported_setting` names the
first one that is not; the checkpoint then loads as transformers' own model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.hub.folder import HFConfig
from regard.models import FEEDFORWARDS

HARMLESS = {  # settings that change none of the numbers that our models compute, and why
    "training only": """
        attention_dropout attention_probs_dropout_prob activation_dropout attn_pdrop classif_dropout classifier_dropout
        dropout embd_pdrop encoder_layerdrop decoder_layerdrop gradient_checkpointing hidden_dropout_prob init_std
        initializer_factor initializer_range output_past qa_dropout resid_pdrop seq_classif_dropout
        tf_legacy_loss router_aux_loss_coef""",
    "how texts are generated, not what the logits are": """
        bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample early_stopping
        encoder_no_repeat_ngram_size exponential_decay_length_penalty force_bos_token_to_be_generated
        forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens min_length
        no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores prefix
        remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens task_specific_params
        temperature top_k top_p typical_p""",
    "token ids, which the tokenizer has too": """
        bos_token_id cls_token_id eos_token_id mask_token_id pad_token_id sep_token_id tokenizer_class unk_token_id""",
    "what a model returns, and how it is executed": """
        chunk_size_feed_forward dtype output_attentions output_hidden_states pretraining_tp reorder_and_upcast_attn
        return_dict torch_dtype torchscript use_bfloat16 use_cache use_return_dict _attn_implementation
        _attn_implementation_autoset attn_implementation""",
    "of heads that are not converted": """
        _num_labels finetuning_task id2label label2id num_labels problem_type summary_activation
        summary_first_dropout summary_proj_to_labels summary_type summary_use_proj""",
    "bookkeeping": """
        _commit_hash _name_or_path architectures model_type name_or_path transformers_version transformers.js_config""",
    "of earlier versions of transformers, which have read them nowhere in these models": """
        directionality n_ctx pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
        pooler_type predict_special_tokens""",
}
_HARMLESS = frozenset(" ".join(HARMLESS.values()).split())


@dataclass(frozen=True)
class SupportedSettings:
    """The settings of one family.

    architectures  classes of transformers that we implement; a config.json that names none means the first
    sizes          whole numbers above 0
    numbers        other numbers
    flags          true or false
    values         the values that we implement; the first is the default of transformers, None if it has to be said
    required       settings without a default here, since transformers has another or its versions differ
    nullable       settings that may be null
    rotary         whether the family has rotary embeddings, of which we implement the unscaled ones
    equal          settings that repeat another one
    """

    architectures: tuple[str, ...]
    sizes: str
    numbers: str = ""
    flags: str = ""
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    required: str = ""
    nullable: str = ""
    rotary: bool = False
    equal: Mapping[str, str] = field(default_factory=dict)


_COMMON: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (False,),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "tie_encoder_decoder": (False,),
    "quantization_config": (None,),
}
_BERT = {
    **_COMMON,
    "hidden_act": ("gelu", *(name for name in FEEDFORWARDS if name != "gelu")),
    "position_embedding_type": ("absolute",),
    "tie_word_embeddings": (True,),
}
_BERT_SIZES = (
    "vocab_size num_hidden_layers hidden_size num_attention_heads intermediate_size max_position_embeddings"
    " type_vocab_size"
)
_LLAMA_SIZES = (
    "vocab_size num_hidden_layers hidden_size num_attention_heads intermediate_size max_position_embeddings"
    " num_key_value_heads head_dim"
)
_SEQ2SEQ = {
    **_COMMON,
    "is_encoder_decoder": (True,),
    "activation_function": ("gelu", "relu", "swish", "silu"),
    "tie_word_embeddings": (True,),
    "normalize_before": (False,),
    "add_final_layer_norm": (False,),
    "add_bias_logits": (False,),
    "extra_pos_embeddings": (2,),
}
_SEQ2SEQ_SIZES = (
    "vocab_size d_model max_position_embeddings encoder_layers decoder_layers encoder_attention_heads"
    " decoder_attention_heads encoder_ffn_dim decoder_ffn_dim"
)

SUPPORTED = {
    "gpt2": SupportedSettings(
        ("GPT2LMHeadModel", "GPT2Model"),
        sizes="vocab_size n_positions n_embd n_layer n_head n_inner",
        numbers="layer_norm_epsilon",
        flags="tie_word_embeddings",
        values={
            **_COMMON,
            "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu", "relu"),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
        },
        required="vocab_size n_positions n_embd n_layer n_head",
        nullable="n_inner",
    ),
    "llama": SupportedSettings(
        ("LlamaForCausalLM", "LlamaModel"),
        sizes=_LLAMA_SIZES,
        numbers="rms_norm_eps rope_theta",
        flags="tie_word_embeddings attention_bias mlp_bias",
        values={**_COMMON, "hidden_act": ("silu",)},
        required="vocab_size num_hidden_layers hidden_size num_attention_heads intermediate_size",
        nullable="num_key_value_heads head_dim",
        rotary=True,
    ),
    "mistral": SupportedSettings(
        ("MistralForCausalLM", "MistralModel"),
        sizes=_LLAMA_SIZES,
        numbers="rms_norm_eps rope_theta",
        flags="tie_word_embeddings",
        values={**_COMMON, "hidden_act": ("silu",), "sliding_window": (None,)},
        required="vocab_size num_hidden_layers hidden_size num_attention_heads intermediate_size num_key_value_heads"
        " sliding_window",
        nullable="head_dim",
        rotary=True,
    ),
    "bert": SupportedSettings(
        ("BertModel", "BertForMaskedLM", "BertForPreTraining"),
        sizes=_BERT_SIZES,
        numbers="layer_norm_eps",
        values=_BERT,
        required=_BERT_SIZES.removesuffix(" type_vocab_size"),
    ),
    "roberta": SupportedSettings(
        ("RobertaModel", "RobertaForMaskedLM"),
        sizes=_BERT_SIZES,
        numbers="layer_norm_eps",
        values={**_BERT, "hidden_act": ("gelu",), "pad_token_id": (1,)},
        required=f"{_BERT_SIZES} layer_norm_eps",
    ),
    "distilbert": SupportedSettings(
        ("DistilBertModel", "DistilBertForMaskedLM"),
        sizes="vocab_size n_layers dim n_heads hidden_dim max_position_embeddings",
        flags="sinusoidal_pos_embds",  # the positions are tensors of the checkpoint either way
        values={
            **_COMMON,
            "activation": _BERT["hidden_act"],
            "tie_word_embeddings": (True,),
            "tie_weights_": (True,),
        },
        required="vocab_size n_layers dim n_heads hidden_dim max_position_embeddings",
    ),
    "bart": SupportedSettings(
        ("BartForConditionalGeneration",),
        sizes=_SEQ2SEQ_SIZES,
        flags="scale_embedding",
        values={**_SEQ2SEQ, "static_position_embeddings": (False,), "normalize_embedding": (True,)},
        required=_SEQ2SEQ_SIZES,
        equal={"num_hidden_layers": "encoder_layers"},
    ),
    "marian": SupportedSettings(
        ("MarianMTModel",),
        sizes=_SEQ2SEQ_SIZES,
        flags="scale_embedding",
        values={
            **_SEQ2SEQ,
            "share_encoder_decoder_embeddings": (True,),
            "static_position_embeddings": (True,),
            "normalize_embedding": (False,),
        },
        required=_SEQ2SEQ_SIZES,
        equal={"num_hidden_layers": "encoder_layers", "decoder_vocab_size": "vocab_size"},
    ),
}


def unsupported_setting(config: HFConfig, is_default: Callable[[str, Any], bool]) -> str | None:
    """Why a checkpoint of a family cannot be converted, as a clause that names the setting; None: it can.

    `is_default(name, value)`: whether transformers has this value by default; asked for settings not listed here.
    """
    supported = SUPPORTED[str(config.get("model_type"))]
    named = config.architecture
    if named and named not in supported.architectures:
        return f"config.json names the architecture {named}"
    for name in supported.required.split():
        if name not in config.values:
            return f"config.json does not set {name}"
    for name, value in config.values.items():
        if not _is_supported(supported, config, name, value) and not _is_unread(supported, name, value, is_default):
            return f"config.json sets {name} = {_shown(value)}"
    both = config.get("rope_parameters") and config.get("rope_scaling")
    return "config.json sets both rope_parameters and rope_scaling" if supported.rotary and both else None


def _is_supported(supported: SupportedSettings, config: HFConfig, name: str, value: Any) -> bool:
    if name in supported.values:
        return any(type(value) is type(one) and value == one for one in supported.values[name])
    if name in supported.equal:
        return value is None or value == config.get(supported.equal[name])
    if value is None and name in supported.nullable.split():
        return True
    if name in supported.sizes.split():
        return type(value) is int and value > 0
    if name in supported.numbers.split():
        return type(value) in (int, float) and math.isfinite(value) and value > 0
    if name in supported.flags.split():
        return type(value) is bool
    if supported.rotary and name in ("rope_parameters", "rope_scaling"):
        return value is None or _is_plain_rotary(value)
    return name in _HARMLESS


def _is_plain_rotary(rope: Any) -> bool:
    """Whether rotary embeddings are unscaled; early configurations have `type` instead of `rope_type`."""
    if not isinstance(rope, Mapping) or not rope.keys() <= {"rope_type", "type", "rope_theta"}:
        return False
    theta = rope.get("rope_theta", 1.0)
    plain = all(rope.get(key, "default") == "default" for key in ("rope_type", "type"))
    return plain and type(theta) in (int, float) and math.isfinite(theta) and theta > 0


def _is_unread(supported: SupportedSettings, name: str, value: Any, is_default: Callable[[str, Any], bool]) -> bool:
    """Whether a setting that is not listed has no effect: transformers has this value by default."""
    listed = {*supported.values, *supported.equal, *supported.sizes.split(), *supported.numbers.split()}
    listed |= {*supported.flags.split(), "rope_parameters", "rope_scaling"}
    return name not in listed and is_default(name, value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
