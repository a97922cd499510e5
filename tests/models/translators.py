"""Translators small enough for laws, in float64: one for every decoder of the recurrent line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from regard.attention.scores import Additive, Bilinear, Dot
from regard.attention.windows import LocalM, LocalP
from regard.models.decoders import Bahdanau, Bottleneck, Decoder, Luong, LuongInputFeeding
from regard.models.embedding import WordEmbedding
from regard.models.pointer import PointerGenerator
from regard.models.rnn_encoder import BiRNNEncoder
from regard.models.seq2seq import Seq2Seq

M = TypeVar("M", bound=nn.Module)
WORDS, WIDTH, HIDDEN, STATES, UNKNOWN = 12, 6, 8, 8, 1
SIZES = (WIDTH, HIDDEN, STATES)

DECODERS: dict[str, Callable[[], Decoder]] = {
    "bottleneck": lambda: Bottleneck(*SIZES),
    "bottleneck of two layers": lambda: Bottleneck(*SIZES, layers=2, cell="lstm"),
    "bahdanau": lambda: Bahdanau(*SIZES),
    "bahdanau with lstm": lambda: Bahdanau(*SIZES, Additive(HIDDEN, 5, STATES), cell="lstm"),
    "bahdanau with rnn": lambda: Bahdanau(*SIZES, cell="rnn"),
    "bahdanau with coverage": lambda: Bahdanau(*SIZES, coverage=True),
    "dot": lambda: Luong(*SIZES, Dot()),
    "bilinear": lambda: Luong(*SIZES, Bilinear(HIDDEN, STATES), layers=2),
    "concat": lambda: Luong(*SIZES, Additive(HIDDEN, 5, STATES), cell="gru"),
    "local-m": lambda: Luong(*SIZES, Dot(), LocalM(2)),
    "local-p": lambda: Luong(*SIZES, Dot(), LocalP(HIDDEN, 2)),
    "dot, fed": lambda: LuongInputFeeding(*SIZES, Dot()),
    "concat, fed, two layers": lambda: LuongInputFeeding(*SIZES, Additive(HIDDEN, 5, STATES), layers=2),
    "local-m, fed": lambda: LuongInputFeeding(*SIZES, Dot(), LocalM(2), cell="gru"),
    "local-p, fed": lambda: LuongInputFeeding(*SIZES, Bilinear(HIDDEN, STATES), LocalP(HIDDEN, 2)),
}
ATTENDING = [name for name in DECODERS if not name.startswith("bottleneck")]
by_decoder = pytest.mark.parametrize("name", DECODERS)
by_attending = pytest.mark.parametrize("name", ATTENDING)


def words() -> WordEmbedding:
    return WordEmbedding(WORDS, WIDTH, UNKNOWN)


def translator(name: str = "bahdanau") -> Seq2Seq:
    torch.manual_seed(0)
    return large(Seq2Seq(BiRNNEncoder(words(), STATES), DECODERS[name](), words()))


def pointer(coverage: bool = True) -> PointerGenerator:
    torch.manual_seed(0)
    decoder = Bahdanau(*SIZES, coverage=coverage)
    return large(PointerGenerator(BiRNNEncoder(words(), STATES), decoder, words()))


def large(model: M) -> M:
    """In float64, and with weights large enough to tell something."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.7)
    return model


def batch(rows: int = 3, source: int = 7, target: int = 5, most: int = WORDS) -> tuple[Tensor, Tensor, Tensor]:
    """Sources (B, S), how many of each are real, and targets (B, T)."""
    chance = torch.Generator().manual_seed(1)
    lengths = torch.tensor([source, *torch.randint(1, source + 1, (rows - 1,), generator=chance).tolist()])
    return (
        torch.randint(1, most, (rows, source), generator=chance),
        lengths,
        torch.randint(1, most, (rows, target), generator=chance),
    )


def stepped(model: Seq2Seq, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    """ln p (B, T, V) word by word."""
    state, said = model.start(source, lengths), []
    for word in target.unbind(1):
        logs, _, state = model.step(state, word)
        said.append(logs)
    return torch.stack(said, 1)
