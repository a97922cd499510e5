"""docs/models.md: what the zoo found, for people who want to know whether their model is heard."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

VERDICTS = {  # in the order of the page, with what each means to a reader
    "right": "Outputs, gradients, generation and every layer's weights are eager's; listening changes no bit.",
    "heard in part": "Outputs are eager's. Some attention layers are heard exactly; the classes named here are not, "
    "and `heard.unheard` and a warning say so.",
    "unheard": "Outputs are eager's. The attention is of another form, named here, and a warning says that it is not "
    "heard.",
    "no softmax attention": "There is nothing to hear: convolutions, state spaces, Fourier transforms.",
    "refused": "regard says in a sentence what it cannot do.",
    "wrong": "Numbers differ from eager's.",
    "loud": "An error that is no sentence of ours.",
    "not built": "A tiny model of this type could not be made or run here, in eager either, so nothing is known.",
}
INTRODUCTION = """# Which models are heard

`attn_implementation="regard"` was compared with eager attention on a tiny random model of every architecture that
transformers {transformers} registers ({kinds} model types, {classes} classes; torch {torch}). Weights are random, and
large enough that attention is far from uniform. Each class is compared call by call: outputs; the same bits while
`capture` listens; every map of weights that eager returns; padding on either side; that a token does not see later
ones; gradients; greedy generation from a growing and a static cache, from texts padded on the left, and with beams.
`make zoo` makes this page anew (some minutes on two cores).{oldest}

A class that attends through transformers' attention interface runs on regard's kernels. One that computes its own
softmax runs its own code, and `capture` takes the weights where that code multiplies the values by them. What cannot
be heard is named: `heard.unheard` maps each module to its class, and a `CaptureWarning` says "4 of 6 attention modules
were heard; not heard: ...".

Most are equal to float32's rounding. A few are compared in float64, because float32 rounds their order of near ties or
their norms of almost constant rows one way in one place and another way in the other ("in float64" below), or beside
what transformers runs by default, because they hand eager attention a boolean mask, which it adds ("beside the
default").

| verdict | classes | what it means |
|---|---|---|
{counts}
"""


def write_table(path: Path, kept: dict[str, Any], oldest: dict[str, Any] | None = None) -> None:
    """Write the page: counts, then the classes of each verdict. `oldest`: of the oldest supported transformers."""
    classes = kept["classes"]
    by_verdict: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in classes:
        by_verdict[one["verdict"]].append(one)
    counts = [f"| {name} | {len(by_verdict[name])} | {meaning} |" for name, meaning in VERDICTS.items()]
    text = INTRODUCTION.format(
        transformers=kept["transformers"],
        torch=kept["torch"],
        kinds=len({one["kind"] for one in classes}),
        classes=len(classes),
        counts="\n".join(counts),
        oldest="" if oldest is None else _of_oldest(oldest),
    )
    for name in VERDICTS:
        if by_verdict[name]:
            text += f"\n## {name.capitalize()}\n\n" + _rows(name, by_verdict[name])
    path.write_text(text)


def _of_oldest(kept: dict[str, Any]) -> str:
    found = Counter(one["verdict"] for one in kept["classes"])
    counts = ", ".join(f"{found[name]} {name}" for name in VERDICTS)
    return (
        f"\n\nWith transformers {kept['transformers']}, the oldest that is supported, the same run came to: {counts}."
    )


def _rows(verdict: str, found: list[dict[str, Any]]) -> str:
    """A row a class; for those that are right, what was compared."""
    if verdict == "no softmax attention":
        return ", ".join(f"{one['kind']} (`{one['name']}`)" for one in found) + "\n"
    right = verdict == "right"
    head = "| model type | class | heard layers | compared |\n|---|---|---|---|\n" if right else HEAD
    return head + "\n".join(_right(one) if right else _other(one) for one in found) + "\n"


HEAD = "| model type | class | why |\n|---|---|---|\n"


BESIDE = {"eager": "", "float64": " (in float64)", "default": " (beside the default, in float64)"}


def _right(one: dict[str, Any]) -> str:
    return f"| {one['kind']} | `{one['name']}` | {one['heard']} | {', '.join(one['checked'])}{BESIDE[one['beside']]} |"


def _other(one: dict[str, Any]) -> str:
    why = one["why"].replace("|", "\\|")
    heard = f"{one['heard']} heard; not heard: " if one["verdict"] in ("heard in part", "unheard") else ""
    return f"| {one['kind']} | `{one['name']}` | {heard}{why} |"
