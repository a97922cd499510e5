"""The command line: one thin file per verb, and the handling of errors and exit codes."""

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
    caption,
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
from regard.cli.command import CONTEXT, Command
from regard.errors import CaptureWarning, CheckpointWarning, RegardError, RunWarning, is_rust_panic

# Verb files keep torch, numpy and matplotlib inside their functions, so that `regard --help` stays quick.
app = typer.Typer(
    name="regard",
    help="Attention models: train, use, view and test them.",
    epilog="`regard COMMAND -h` shows the arguments and options of a command.",
    context_settings=CONTEXT,
    subcommand_metavar="COMMAND ...",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: loading rich would take longer than all the rest
)
app.command("demo", cls=Command)(demo.demo)
app.command("lookup", cls=Command)(lookup.lookup)
app.command("corpus", cls=Command)(corpus.corpus)
app.add_typer(tokenize.app, name="tokenize")
app.command("train", cls=Command)(train.train)
app.command("curves", cls=Command)(curves.curves)
app.command("translate", cls=Command)(translate.translate)
app.command("align", cls=Command)(align.align)
app.command("generate", cls=Command)(generate.generate)
app.command("look", cls=Command)(look.look)
app.command("atlas", cls=Command)(atlas.atlas)
app.command("audit", cls=Command)(audit.audit)
app.command("serve", cls=Command)(serve.serve)
app.command("fill", cls=Command)(fill.fill)
app.command("caption", cls=Command)(caption.caption)
app.command("classify", cls=Command)(classify.classify)
app.command("embed", cls=Command)(embed.embed)
app.command("score", cls=Command)(score.score)
app.command("import", cls=Command)(import_.import_)
app.command("export", cls=Command)(export.export)
app.command("prune", cls=Command)(prune.prune)


@dataclass
class GlobalOptions:
    """The options before the verb; they outlive the verb, so that `main` can report a failure accordingly."""

    debug: bool = False


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before the verb."""
    context.ensure_object(GlobalOptions).debug = debug
    warnings.showwarning = _show_warning  # type: ignore[assignment]


def _show_warning(message: Warning | str, kind: type[Warning], name: str, line: int, *more: Any) -> None:
    """Show regard's warnings in one line, other warnings as Python does."""
    if issubclass(kind, RunWarning | CheckpointWarning | CaptureWarning):
        typer.echo(f"regard: {message}", err=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, kind, name, line))


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 unexpected error, 2 an error the user can fix, 130 Ctrl-C."""
    settings = GlobalOptions()
    try:
        app(obj=settings, prog_name="regard")
    except KeyboardInterrupt:
        sys.exit(130)
    except RegardError as error:
        if settings.debug:
            raise
        typer.echo(f"regard: {error}", err=True)
        sys.exit(2)
    except BaseException as error:  # --debug shows it in full
        if settings.debug or not (isinstance(error, Exception) or is_rust_panic(error)):
            raise
        if isinstance(error, OSError) and error.filename is not None:  # a forbidden folder, a full disk
            typer.echo(f"regard: Could not open or write {error.filename}: {error.strerror}.", err=True)
            sys.exit(2)
        typer.echo(f"regard: {_one_line(error)}; `regard --debug COMMAND ...` shows the traceback", err=True)
        sys.exit(1)


def _one_line(error: BaseException) -> str:
    """The name of the exception and the first line of its message."""
    message = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
