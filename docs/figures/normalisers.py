"""Draws normalisers.svg: the weights that one query gives to ten keys, from the same scores, by every normaliser."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from regard import Observe, attend
from regard.attention.normalise import Entmax, Sink, Sparsemax
from regard.attention.scores import ScaledDot

SCORES = torch.tensor([3.0, 2.6, 1.9, 1.5, 1.2, 0.8, 0.1, -0.4, -1.0, -2.0])
PANELS = {
    "softmax": {},
    "softmax and a sink": {"normalise": Sink(torch.tensor(3.0))},
    "softmax, scores capped at 2": {"score": ScaledDot(scale=1.0, cap=2.0)},
    "entmax, alpha 1.5": {"normalise": Entmax(1.5)},
    "sparsemax": {"normalise": Sparsemax()},
}
BLUE, GREY = "#2f6fb3", "#9a9a9a"


def weights_of(how: dict[str, object]) -> tuple[Tensor, float]:
    """The weights (10,), and what a sink took."""
    got = attend(torch.ones(1, 1), SCORES[:, None], observe=Observe(weights=True), **{"score": ScaledDot(1.0), **how})
    return got.weights[0], 0.0 if got.sink is None else float(got.sink)


def main() -> None:
    figure, panels = plt.subplots(1, len(PANELS), figsize=(11, 2.3), sharey=True, layout="constrained")
    for panel, (title, how) in zip(panels, PANELS.items(), strict=True):
        weights, sink = weights_of(how)
        panel.bar(range(len(weights)), weights, color=BLUE, width=0.75)
        if sink:
            panel.bar([-1.6], [sink], color=GREY, width=0.75)
            panel.annotate("the sink", (-1.6, sink), ha="center", va="bottom", fontsize=8, color="#555555")
        zeros = [at for at, weight in enumerate(weights) if weight == 0]
        panel.scatter(zeros, [0.012] * len(zeros), marker="_", color=GREY, s=30, linewidths=1.5)
        panel.set_title(title, fontsize=9.5)
        panel.set_xticks([])
        panel.set_xlim(-3.4, 9.8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("weight")
    panels[2].set_xlabel("ten keys, by falling score (3 to -2); a grey dash is a weight of exactly 0")
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
