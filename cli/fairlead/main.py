"""The `fairlead` command: its own options, and how errors become exit codes. Its verbs: `verbs.py`. Wiring only."""

import atexit
import contextlib
import gc
import os
import sys
from typing import Annotated

import typer

from fairlead.errors import FairleadError, InputRefused
from fairlead.verbs import LazyGroup
from fairlead_schemas.units.quantities import QuantityError

app = typer.Typer(
    cls=LazyGroup,
    name="fairlead",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Submit jobs, share GPUs, and ask why. Every decision is an event that you can replay and query.",
)


def _print_version(ctx: typer.Context, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version  # imported by those who ask, since it takes longer than a command may

    from fairlead.client import Client

    typer.echo(f"fairlead {version('fairlead-cluster')}")
    with (
        contextlib.suppress(FairleadError),
        Client(ctx.params.get("url") or "", context=ctx.params.get("context") or "") as client,
    ):
        found = client.version()
        if found is not None:
            typer.echo(f"gateway {found.version} (API {found.api}) at {client.url}")
    raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            help="The gateway.  [env: FAIRLEAD_URL; default: that of the context, else of the stack of $FAIRLEAD_DATA or ./.fairlead, else port 8080 here]",
            show_default=False,
        ),
    ] = "",
    context: Annotated[
        str,
        typer.Option(
            "--context",
            help="The cluster with this name.  [env: FAIRLEAD_CONTEXT; default: that of `fairlead context use`]",
            show_default=False,
        ),
    ] = "",
    user: Annotated[
        str,
        typer.Option(
            "--as",
            help="Your name, where there is no sign-on.  [env: FAIRLEAD_USER; default: your login]",
            show_default=False,
        ),
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="SEQ|TIME",
            help='Before a verb that reads: what it would have shown then ("2 hours ago", "yesterday 03:12", a log sequence).  [env: FAIRLEAD_AT]',
            show_default=False,
        ),
    ] = "",
    log: Annotated[
        str,
        typer.Option(
            "--log",
            metavar="DIR",
            help="Before a verb that reads: answer from a kept log (of `audit export`, an archive, or `whatif --keep`) instead of a gateway.  [env: FAIRLEAD_LOG_DIR]",
            show_default=False,
        ),
    ] = "",
    version: Annotated[  # read by its callback
        bool,
        typer.Option(
            "--version",
            help="Print the version, and that of the gateway if it answers; behind --url and --context.",
            callback=_print_version,
        ),
    ] = False,
) -> None:
    """Settings of every verb. The token is taken from FAIRLEAD_TOKEN only: other users can read command lines."""
    if context and url:
        raise InputRefused("expected --url or --context, found both")
    if context:
        os.environ.pop("FAIRLEAD_URL", None)  # what was typed counts more
    for name, value in (
        ("FAIRLEAD_URL", url),
        ("FAIRLEAD_USER", user),
        ("FAIRLEAD_CONTEXT", context),
    ):
        if value:
            os.environ[name] = value
    for name, value in (("FAIRLEAD_AT", at), ("FAIRLEAD_LOG_DIR", log)):
        if value:  # of this command only, also where one process runs several
            _set_for(ctx, name, value)


def _set_for(ctx: typer.Context, name: str, value: str) -> None:
    """Set a variable of the environment until a command has ended."""
    before = os.environ.get(name, "")
    os.environ[name] = value
    ctx.call_on_close(lambda: os.environ.__setitem__(name, before))


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns its exit code (errors.py lists them)."""
    if arguments is None:
        atexit.register(_freeze)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        app(args=words, prog_name="fairlead")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    except QuantityError as error:
        return _fail(InputRefused(str(error)), words)
    except FairleadError as error:
        return _fail(error, words)
    except BrokenPipeError:
        # `fairlead jobs | head`: the reader has what it wanted. Python must not try to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _freeze() -> None:
    """Spare the look through all objects for cycles that Python takes at its end: it takes longer than a request. DuckDB needs it."""
    if "_duckdb" not in sys.modules:
        gc.freeze()


def _fail(error: FairleadError, words: list[str]) -> int:
    """Say what was wrong and what helps; to those who asked for JSON, the API's own problem document."""
    from fairlead.render import terminal

    wants_json = any(word in ("json", "--output=json", "-ojson") for word in words)
    if wants_json and error.problem is not None:
        terminal.write(terminal.document(error.problem, terminal.Format.json), sys.stderr)
    else:
        terminal.note(f"error: {error}")
        if error.hint:
            terminal.note(f"hint: {error.hint}")
    return error.exit_code
