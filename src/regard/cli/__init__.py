"""The command line: one thin file a verb, and one place where errors turn into words and exit codes."""

import sys
import warnings
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard import __version__
from regard.cli import (
    align,
    atlas,
    audit,
    classify,
    corpus,
    curves,
    demo,
    embed,
    export,
    fill,
    generate,
    import_,
    look,
    lookup,
    prune,
    score,
    serve,
    tokenize,
    train,
    translate,
)
from regard.errors import RegardError, RunWarning

# Verb files keep torch, numpy and matplotlib inside their functions, so that `regard --help` stays quick.
app = typer.Typer(
    name="regard",
    help="Attention: train it, use it, see it, test it.",
    epilog="`regard VERB --help` says what a verb takes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: loading rich would take longer than all the rest
)
app.command("demo")(demo.demo)
app.command("lookup")(lookup.lookup)
app.command("corpus")(corpus.corpus)
app.add_typer(tokenize.app, name="tokenize")
app.command("train")(train.train)
app.command("curves")(curves.curves)
app.command("translate")(translate.translate)
app.command("align")(align.align)
app.command("generate")(generate.generate)
app.command("look")(look.look)
app.command("atlas")(atlas.atlas)
app.command("audit")(audit.audit)
app.command("serve")(serve.serve)
app.command("fill")(fill.fill)
app.command("classify")(classify.classify)
app.command("embed")(embed.embed)
app.command("score")(score.score)
app.command("import")(import_.import_)
app.command("export")(export.export)
app.command("prune")(prune.prune)


@dataclass
class Settings:
    """What the options before the verb say; it outlives the verb, so that a failure can be shown accordingly."""

    debug: bool = False


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback when something fails.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Take the options that stand before the verb."""
    context.ensure_object(Settings).debug = debug
    warnings.showwarning = _show_warning  # type: ignore[assignment]


def _show_warning(message: Warning | str, kind: type[Warning], name: str, line: int, *more: Any) -> None:
    """Warnings of ours in one line, as errors are; those of others as Python shows them."""
    if issubclass(kind, RunWarning):
        typer.echo(f"regard: {message}", err=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, kind, name, line))


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 unexpected failure, 2 something the user can mend, 130 Ctrl-C."""
    settings = Settings()
    try:
        app(obj=settings, prog_name="regard")
    except KeyboardInterrupt:
        sys.exit(130)
    except RegardError as error:
        if settings.debug:
            raise
        typer.echo(f"regard: {error}", err=True)
        sys.exit(2)
    except Exception as error:  # the last resort; --debug shows it in full
        if settings.debug:
            raise
        typer.echo(f"regard: {_one_line(error)}; `regard --debug VERB ...` shows the traceback", err=True)
        sys.exit(1)


def _one_line(error: Exception) -> str:
    """The exception's name and the first line of what it says."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
