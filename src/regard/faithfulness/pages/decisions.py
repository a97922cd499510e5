"""Single decisions on the report page: the words of the text, shaded by each attribution map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from regard.faithfulness.findings import Findings
from regard.faithfulness.pages.glossary import METHODS, breakable, display_names

OPEN_LAYERS = 2  # the last ones; earlier ones are folded
MAX_TOKENS = 160  # of a text, at most

Decision = Mapping[str, Any]


def render_decisions(report: Findings) -> str:
    """Empty where the report does not hold the maps themselves."""
    known = [one for one in report.examples if one.get("attributions")]
    if not known:
        return ""
    layers = [name for name in known[0]["attributions"] if name not in METHODS]
    judged = layers[-1] if layers else next(iter(known[0]["attributions"]))
    names = display_names(report)
    parts = [_render_decision(why, one, judged, names) for why, one in _pick_decisions(known, judged)]
    return (
        '<section id="decisions"><h2>Single decisions</h2><p>The darker a word, the higher its score; each line is '
        "scaled to its own maximum. Words that oppose the decision are underlined. Hover over a word to see its score."
        f"</p>{''.join(parts)}</section>"
    )


def _pick_decisions(known: Sequence[Decision], judged: str) -> list[tuple[str, Decision]]:
    """The decisions where this map did best and worst, and the most confident error; ties by order."""
    measured = [one for one in known if "comprehensiveness" in one["maps"].get(judged, {})]
    if not measured:
        return [("The first decision", known[0])]

    def comprehensiveness(one: Decision) -> float:
        return float(one["maps"][judged]["comprehensiveness"])

    wanted = [
        ("The top words of its last layer mattered most", max(measured, key=comprehensiveness)),
        ("They mattered least", min(measured, key=comprehensiveness)),
    ]
    wrong = [one for one in known if one["correct"] is False]
    if wrong:
        wanted.append(("The most confident error", max(wrong, key=lambda one: float(one["p"]))))
    picked: list[tuple[str, Decision]] = []
    for why, one in wanted:
        if not any(one is other for _, other in picked):
            picked.append((why, one))
    return picked


def _render_decision(why: str, one: Decision, judged: str, names: Mapping[str, str]) -> str:
    right = {True: ", which is correct", False: ", which is wrong", None: ""}[one["correct"]]
    change = one["maps"].get(judged, {}).get("comprehensiveness")
    less = (
        ""
        if change is None
        else f" Without the top words of {names.get(judged, judged)} its probability {_change_in_words(change)}."
    )
    layers = [name for name in one["attributions"] if name not in METHODS]
    methods = [name for name in one["attributions"] if name in METHODS and (name != "attention" or not layers)]
    first, rest = layers[-OPEN_LAYERS:], layers[:-OPEN_LAYERS]
    earlier = _shaded_lines(rest, one, names)
    folded = f"<details><summary>{len(rest)} earlier layers</summary>{earlier}</details>" if rest else ""
    return (
        f'<article class="decision"><h3>{escape(why)}</h3><p>The model predicted <b dir="auto">'
        f"{escape(one['predicted'])}</b> ({one['p']:.1%}){right}.{escape(less)}{_evidence(one)}</p>"
        f"{_shaded_lines((*first, *methods), one, names)}{folded}</article>"
    )


def _evidence(one: Decision) -> str:
    """The words that are known to decide, if any."""
    if not one.get("evidence"):
        return ""
    words = " ".join(f"<b>{escape(breakable(one['tokens'][at]))}</b>" for at in one["evidence"])
    return f" Words known to decide: {words}."


def _change_in_words(loss: float) -> str:
    return f"falls by {loss:.1%}" if loss >= 0 else f"rises by {-loss:.1%}"


def _shaded_lines(maps: Sequence[str], one: Decision, names: Mapping[str, str]) -> str:
    return f'<dl class="shaded">{"".join(_shaded_line(name, names.get(name, name), one) for name in maps)}</dl>'


def _shaded_line(name: str, title: str, one: Decision) -> str:
    tokens, values = one["tokens"], one["attributions"][name]
    largest = max((abs(value) for value in values), default=0.0) or 1.0
    words = [
        f"{gap}{_shaded_token(text, value, abs(value) / largest)}"
        for (gap, text), value in zip(_split_spaces(tokens[:MAX_TOKENS]), values, strict=False)
    ]
    more = f" … {len(tokens) - MAX_TOKENS} more" if len(tokens) > MAX_TOKENS else ""
    return f'<dt title="{escape(name)}">{breakable(title)}</dt><dd dir="auto">{"".join(words)}{more}</dd>'


def _shaded_token(text: str, value: float, strength: float) -> str:
    against = ' class="against"' if value < 0 and strength >= 0.05 else ""
    return f'<mark{against} style="--w:{strength:.2f}" title="{value:.4g}">{escape(text)}</mark>'


def _split_spaces(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """The text of each token, and the space before it if it begins a word."""
    spaces = ("▁", "Ġ")  # prefixes of pieces that begin a word, of SentencePiece and of byte-level tokenizers
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
