"""Fallback to transformers: checkpoints of other architectures load as transformers' own models."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from torch import nn

from regard.errors import CheckpointError
from regard.hub.attention_interface import NAME, enable


def is_known_to_transformers(kind: object) -> bool:
    """Whether transformers is installed and has models of this type."""
    if find_spec("transformers") is None:
        return False
    from transformers import CONFIG_MAPPING

    return kind in CONFIG_MAPPING


def load_with_transformers(folder: Path) -> nn.Module:
    """The model that config.json names, attending through regard; nothing is downloaded or unpickled, and no code of
    the folder is run."""
    import transformers

    enable()
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    names = [name for name in config.architectures or () if hasattr(transformers, name)]
    made = getattr(transformers, names[0]) if names else transformers.AutoModel
    how = {"local_files_only": True, "use_safetensors": True, "attn_implementation": NAME}
    try:
        model: nn.Module = made.from_pretrained(folder, **how)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"transformers cannot load this {config.model_type} model: {reason}", where=str(folder)
        ) from None
    return model.eval()
