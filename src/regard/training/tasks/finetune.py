"""Fine-tuning of BERT: the model section of tasks on BERT, and copying a pre-trained run into the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field
from safetensors.torch import load_file

from regard.errors import SettingError
from regard.models import Bert, MaskedLM
from regard.models.config import SpanPredictorConfig
from regard.runs import TOKENIZER, copy_weights, load_weights, save_weights, weights_of
from regard.training.config.recipes import read_recipe, write_recipe
from regard.training.section import InputPath, RecipeSection
from regard.training.tasks.masked_lm import BertSizeSettings, MaskedLMRecipe
from regard.training.tasks.tokenizers import load_run_tokenizer

# copied into the run, which then does not need the pre-trained one
PRETRAINED, PRETRAINED_RECIPE = Path("data", "pretrained.safetensors"), Path("data", "pretrained.toml")
SIZE_SETTINGS = (
    "size",
    "layers",
    "width",
    "heads",
    "max_positions",
    "feedforward_dim",
    "activation",
    "segments",
    "eps",
)


class FinetunedBert(BertSizeSettings):
    """BERT as the encoder of a task, pre-trained or not.

    `pretrained`: a run of the recipe `bert`; its tokenizer replaces [tokenizer] and its size that of [model]. All of it
    is copied, so that run may be deleted. `finetune`: whether BERT is trained further; if not, its states are features.
    `layer`: whose states, by default those of the last layer; 0 are the embeddings, "mix" a learned average of layers.
    """

    pretrained: InputPath | None = None
    finetune: bool = SpanPredictorConfig.finetune
    layer: Annotated[int, Field(ge=0)] | Literal["mix"] | None = SpanPredictorConfig.layer


S = TypeVar("S", bound=FinetunedBert)


def with_pretrained_size(section: S, folder: Path) -> S:
    """The section with the size of its pre-trained BERT, which is copied into this folder; another size is refused."""
    if section.pretrained is None:
        return section
    if not (folder / PRETRAINED).exists():
        _copy_pretrained(section.pretrained, folder)
    recipe = read_recipe(folder / PRETRAINED_RECIPE, tasks={"masked": MaskedLMRecipe})
    assert isinstance(recipe, MaskedLMRecipe)
    sizes = {name: getattr(recipe.model, name) for name in SIZE_SETTINGS}
    for name, value in sizes.items():
        expect_pretrained_size(section, name, value, f"the BERT of {section.pretrained}")
    return section.model_copy(update=sizes)


def expect_pretrained_size(section: RecipeSection, name: str, value: object, pretrained: str) -> None:
    """Refuse a size of [model] that is set to another value than the pre-trained model has."""
    chosen = getattr(section, name)
    if name in section.model_fields_set and chosen not in (None, value):
        raise SettingError(
            f"{name} = {chosen!r} does not fit {pretrained}, which has {name} = {value!r}",
            where=f"model.{name}",
            advice="Leave the setting out.",
        )


def load_pretrained(bert: Bert, folder: Path) -> None:
    """Load the pre-trained weights that were copied into this folder, if there are any."""
    if (folder / PRETRAINED).exists():
        copy_weights(bert, load_file(folder / PRETRAINED), f"{folder / PRETRAINED}")


def _copy_pretrained(run: Path, folder: Path) -> None:
    """Copy a pre-trained BERT into the folder of a new run: tokenizer, size and weights."""
    if not (run / "recipe.toml").exists():
        advice = "Name the folder of a run of the recipe bert."
        raise SettingError(f"{run} is not a run folder", where="model.pretrained", advice=advice)
    recipe = read_recipe(run / "recipe.toml", tasks={"masked": MaskedLMRecipe})
    assert isinstance(recipe, MaskedLMRecipe)
    if recipe.pruned:
        advice = "Fine-tune the unpruned run, and prune afterwards."
        raise SettingError(f"Attention heads of {run} were pruned", where="model.pretrained", advice=advice)
    model = recipe.assemble(run)
    assert isinstance(model, MaskedLM)
    load_weights(model, run)
    (folder / PRETRAINED).parent.mkdir(parents=True, exist_ok=True)
    load_run_tokenizer(recipe.tokenizer, run).save(folder / TOKENIZER)
    write_recipe(recipe, folder / PRETRAINED_RECIPE)
    save_weights(weights_of(model.bert), folder / PRETRAINED)  # last: if it exists, the others do
