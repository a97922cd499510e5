"""The commands of the command line: -h as well as --help, plain names in the help, and renamed options."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from regard.errors import SettingError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]  # of every verb
CONTEXT = {"help_option_names": ["-h", "--help"]}
REPEATABLE = "(repeatable)"  # ends the help of options that may be given more than once

# verb: the options of earlier versions, and what they are called now
RENAMED_OPTIONS = {
    "align": {
        "--first": "--index-base",
        "--balance": "--sinkhorn",
        "--raw": "--no-sinkhorn",
        "--reading": "--weights",
        "--back": "--reverse",
        "--merge": "--symmetrize",
        "--found": "--links",
    },
    "atlas": {"--texts": "--max-texts", "--words": "--max-words"},
    "audit": {"--examples": "--max-examples", "--hard": "--full-search"},
    "curves": {"--against": "--x-axis", "--smooth": "--smoothing"},
    "fill": {"--count": "--top-k"},
    "generate": {"--length": "--max-length", "--repetition": "--repetition-penalty", "--count": "--num-samples"},
    "look": {"--write": "--max-new-tokens", "--place": "--draw-place", "--head": "--draw-head"},
    "prune": {"--by": "--criterion", "--batches": "--max-batches"},
    "score": {"--cache": "--cache-size", "--flatness": "--cache-theta", "--share": "--cache-weight"},
    "serve": {"--writes": "--max-new-tokens"},
    "store": {"--as": "--format"},
    "text": {"--specials": "--special-tokens"},
    "translate": {
        "--best": "--n-best",
        "--coverage": "--coverage-penalty",
        "--shortest": "--min-length",
        "--longest": "--max-length",
    },
}


class Command(TyperCommand):
    """A verb: its help names arguments and values in words, and an option of an earlier version is refused by name."""

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.context_settings = {**CONTEXT, **self.context_settings}

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        known = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        for word in args:
            if word == "--":
                break
            old = word.partition("=")[0]
            new = RENAMED_OPTIONS.get(ctx.info_name or "", {}).get(old)
            if new is not None and old not in known:
                raise SettingError(f"The option {old} is now called {new}", where=ctx.command_path.partition(" ")[2])
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """[OPTIONS] RUN [TEXT]: an argument in brackets may be left out."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.params:
            if param.param_type_name == "argument":
                name = (param.metavar or str(param.name).upper()) + ("..." if param.nargs != 1 else "")
                pieces.append(name if param.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Arguments by their names, options with the kind of value in capitals, ranges in words."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            name, text = record
            if param.param_type_name == "argument":
                sections["Arguments"].append((param.metavar or str(param.name).upper(), _plain_ranges(text)))
            else:
                sections["Options"].append((name, _plain_ranges(text)))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _plain_ranges(text: str) -> str:
    """Ranges in words; lower bounds alone go without saying; defaults in words without parentheses.

    >>> _plain_ranges("Threshold.  [default: 0.2; 0<=x<=1]"), _plain_ranges("Beam width.  [default: 5; x>=1]")
    ('Threshold.  [default: 0.2; 0 to 1]', 'Beam width.  [default: 5]')
    """
    text = re.sub(r"\[default: \(([^()]*)\)", r"[default: \1", text)
    text = re.sub(r"([\d.]+)<=x<=([\d.]+)(?=[\];])", r"\1 to \2", text)
    return re.sub(r"; x>=[\d.]+(?=[\];])|\s*\[x>=[\d.]+\]", "", text)
