"""A few single decisions: the words that the model read, shaded by what each map says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from regard.faithfulness.findings import Findings
from regard.faithfulness.pages.glossary import METHODS, called, written

LAYERS = 2  # as many are shown at once; more are folded
TOKENS = 160  # of a text, at most

Decision = Mapping[str, Any]


def decisions(report: Findings) -> str:
    """Nothing where the report does not hold the maps themselves."""
    known = [one for one in report.examined if one.get("shown")]
    if not known:
        return ""
    layers = [name for name in known[0]["shown"] if name not in METHODS]
    judged = layers[-1] if layers else next(iter(known[0]["shown"]))
    names = called(report)
    parts = [_decision(why, one, judged, names) for why, one in _picked(known, judged)]
    return (
        '<section id="decisions"><h2>A few decisions</h2><p>The darker a word, the more a map gives to it; each line '
        "by its own strongest word. Where a method says that a word speaks against the decision, it is underlined. "
        f"Point at a word for its number.</p>{''.join(parts)}</section>"
    )


def _picked(known: Sequence[Decision], judged: str) -> list[tuple[str, Decision]]:
    """Where this map did best, where it did worst, and where the model was wrong; the first of equals."""
    measured = [one for one in known if "comprehensiveness" in one["maps"].get(judged, {})]
    if not measured:
        return [("The first", known[0])]

    def gone(one: Decision) -> float:
        return float(one["maps"][judged]["comprehensiveness"])

    wanted = [
        ("Where the best words of its last layer mattered most", max(measured, key=gone)),
        ("Where they mattered least", min(measured, key=gone)),
    ]
    wrong = [one for one in known if one["right"] is False]
    if wrong:
        wanted.append(("Where the model was wrong, and most sure", max(wrong, key=lambda one: float(one["p"]))))
    picked: list[tuple[str, Decision]] = []
    for why, one in wanted:
        if not any(one is other for _, other in picked):
            picked.append((why, one))
    return picked


def _decision(why: str, one: Decision, judged: str, names: Mapping[str, str]) -> str:
    right = {True: ", which is right", False: ", which is wrong", None: ""}[one["right"]]
    gone = one["maps"].get(judged, {}).get("comprehensiveness")
    less = (
        "" if gone is None else f" Without the best words of {names.get(judged, judged)} its probability {_fell(gone)}."
    )
    layers = [name for name in one["shown"] if name not in METHODS]
    methods = [name for name in one["shown"] if name in METHODS and (name != "attention" or not layers)]
    first, rest = layers[-LAYERS:], layers[:-LAYERS]
    earlier = _lines(rest, one, names)
    folded = f"<details><summary>{len(rest)} earlier layers</summary>{earlier}</details>" if rest else ""
    return (
        f'<article class="decision"><h3>{escape(why)}</h3><p>The model decided for <b dir="auto">'
        f"{escape(one['chosen'])}</b> ({one['p']:.1%}){right}.{escape(less)}{_truth(one)}</p>"
        f"{_lines((*first, *methods), one, names)}{folded}</article>"
    )


def _truth(one: Decision) -> str:
    """The words that are known to decide, where they are."""
    if not one.get("evidence"):
        return ""
    words = " ".join(f"<b>{escape(written(one['tokens'][at]))}</b>" for at in one["evidence"])
    return f" Known to decide it: {words}."


def _fell(gone: float) -> str:
    return f"falls by {gone:.1%}" if gone >= 0 else f"rises by {-gone:.1%}"


def _lines(maps: Sequence[str], one: Decision, names: Mapping[str, str]) -> str:
    return f'<dl class="shaded">{"".join(_line(name, names.get(name, name), one) for name in maps)}</dl>'


def _line(name: str, title: str, one: Decision) -> str:
    tokens, values = one["tokens"], one["shown"][name]
    largest = max((abs(value) for value in values), default=0.0) or 1.0
    words = [
        f"{gap}{_shaded(text, value, abs(value) / largest)}"
        for (gap, text), value in zip(_spelled(tokens[:TOKENS]), values, strict=False)
    ]
    more = f" … {len(tokens) - TOKENS} more" if len(tokens) > TOKENS else ""
    return f'<dt title="{escape(name)}">{written(title)}</dt><dd dir="auto">{"".join(words)}{more}</dd>'


def _shaded(text: str, value: float, strength: float) -> str:
    against = ' class="against"' if value < 0 and strength >= 0.05 else ""
    return f'<mark{against} style="--w:{strength:.2f}" title="{value:.4g}">{escape(text)}</mark>'


def _spelled(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Tokens as they are read, each with the space before it, if it begins a word."""
    spaces = ("▁", "Ġ")  # before a piece that begins a word, by SentencePiece and by byte-level tokenizers
    spaced = any(token.startswith(spaces) for token in tokens)
    found = []
    for token in tokens:
        if token.startswith(spaces):
            found.append((" ", token[1:] or " "))
        elif token.startswith("##") and len(token) > 2:
            found.append(("", token[2:]))
        else:
            special = token[:1] in "[<" and token[-1:] in "]>"
            found.append((" " if special or not spaced else "", token))
    return found
