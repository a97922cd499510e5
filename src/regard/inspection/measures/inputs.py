"""What each token does to an answer: the gradient of a number with respect to the vectors that tokens are read as.

source, target = saliency(model.embedded.tokens, lambda: model(read, lengths, said)[0].log_probs()[0, 4, 7])

The embedding is best that of the tokens alone, to which positions are added later: a norm straight behind vectors of
almost nothing blows them up, and the integral from nothing then takes thousands of steps.
Everything here is a list with one entry for each time that the embedding is called while the target runs: one for BERT
and GPT, two (source, target) for a translator whose sides share their words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from regard.errors import DtypeError
from regard.inspection.measures.derivatives import Change, Points, Target, gradients, integrated

STEPS = 32


def saliency(embedding: nn.Module, target: Target) -> list[Tensor]:
    """How fast the target changes with each token's vector: the length of the gradient, (B, T)."""
    return [slope.norm(dim=-1) for _, _, slope in gradients(vectors_of(embedding), target)]


def gradient_times_input(embedding: nn.Module, target: Target) -> list[Tensor]:
    """What the target would lose, to first order, if a token's vector were 0: the product with the gradient, (B, T)."""
    return [(x * slope).sum(-1) for _, x, slope in gradients(vectors_of(embedding), target)]


def integrated_embeddings(embedding: nn.Module, target: Target, steps: int = STEPS) -> list[Tensor]:
    """Integrated gradients of the tokens' vectors, (B, T), while all of them grow from 0 to what they are. The sum is
    target - target with vectors of 0."""
    return [x.sum(-1) for _, x in integrated(vectors_of(embedding), target, steps)]


def vectors_of(embedding: nn.Module) -> Points:
    """What a module that turns tokens into vectors (B, T, D) gives, as points through which it passes."""

    @contextmanager
    def points(change: Change) -> Iterator[None]:
        def replaced(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            if not isinstance(output, Tensor) or output.dim() < 2:
                raise DtypeError(f"a {type(output).__name__} from it", "vectors (B, T, D)", where=type(module).__name__)
            return change("vectors", output)

        handle = embedding.register_forward_hook(replaced)
        try:
            yield
        finally:
            handle.remove()

    return points
