"""The `fairlead` command: which verbs there are, and how errors become exit codes. Wiring only."""

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fairlead.commands import (
    agent,
    archive,
    audit,
    credentials,
    demo,
    doctor,
    events,
    idle,
    jobs,
    nodes,
    packing,
    plans,
    queues,
    slurm,
    sql,
    stack,
    submit,
    top,
    usage,
)
from fairlead.errors import FairleadError, InputRefused
from fairlead.render import terminal
from fairlead_schemas.units.quantities import QuantityError

_SUBMIT: dict[str, Any] = {"cls": submit.AfterDashes, "context_settings": {"allow_interspersed_args": False}}
_SBATCH: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_interspersed_args": False},
}

#: (help panel, name, function, settings), in the order of the help text.
VERBS: tuple[tuple[str, str, Callable[..., None], dict[str, Any]], ...] = (
    ("Start here", "demo", demo.demo, {}),
    ("Start here", "up", stack.up, {}),
    ("Start here", "down", stack.down, {}),
    ("Start here", "doctor", doctor.doctor, {}),
    ("Jobs", "submit", submit.submit, _SUBMIT),
    ("Jobs", "jobs", jobs.jobs, {}),
    ("Jobs", "show", jobs.show, {}),
    ("Jobs", "why", jobs.why, {}),
    ("Jobs", "logs", jobs.logs, {}),
    ("Jobs", "wait", jobs.wait, {}),
    ("Jobs", "cancel", jobs.cancel, {}),
    ("Jobs", "hold", jobs.hold, {}),
    ("Jobs", "release", jobs.release, {}),
    ("Jobs", "move", queues.move, {}),
    ("Jobs", "extend", idle.extend, {}),
    ("Cluster", "nodes", nodes.nodes, {}),
    ("Cluster", "cordon", nodes.cordon, {}),
    ("Cluster", "uncordon", nodes.uncordon, {}),
    ("Cluster", "drain", nodes.drain, {}),
    ("Cluster", "taint", nodes.taint, {}),
    ("Cluster", "untaint", nodes.untaint, {}),
    ("Cluster", "quarantine", nodes.quarantine, {}),
    ("Cluster", "unquarantine", nodes.unquarantine, {}),
    ("Cluster", "restore", nodes.restore, {}),
    ("Cluster", "declare-dead", nodes.declare_dead, {}),
    ("Cluster", "packing", packing.packing, {}),
    ("Cluster", "defrag", packing.defrag, {}),
    ("Cluster", "top", top.top, {}),
    ("The record", "events", events.events, {}),
    ("The record", "sql", sql.sql, {}),
    ("The record", "usage", usage.usage, {}),
    ("The record", "replay", audit.replay, {}),
)
ALIASES: tuple[tuple[str, Callable[..., None], dict[str, Any]], ...] = (
    ("squeue", slurm.squeue, {}),
    ("sinfo", slurm.sinfo, {}),
    ("sbatch", slurm.sbatch_verb, _SBATCH),
    ("scancel", slurm.scancel, {}),
    ("sacct", slurm.sacct, {}),
)

app = typer.Typer(
    name="fairlead",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Submit jobs, share GPUs, and ask why. Every decision is an event that you can replay and query.",
)


@app.callback()
def root(
    url: Annotated[
        str,
        typer.Option(
            "--url",
            help="The gateway.  [env: FAIRLEAD_URL; default: the stack of $FAIRLEAD_DATA; without one that of ./.fairlead, else port 8080 here]",
            show_default=False,
        ),
    ] = "",
    user: Annotated[
        str, typer.Option("--as", help="Your name.  [env: FAIRLEAD_USER; default: your login]", show_default=False)
    ] = "",
) -> None:
    """Settings of every verb. The token is taken from FAIRLEAD_TOKEN only: other users can read command lines."""
    for name, value in (("FAIRLEAD_URL", url), ("FAIRLEAD_USER", user)):
        if value:
            os.environ[name] = value


for _panel, _name, _verb, _settings in VERBS:
    app.command(_name, rich_help_panel=_panel, **_settings)(_verb)
for _name, _verb, _settings in ALIASES:
    app.command(_name, hidden=True, **_settings)(_verb)
app.add_typer(queues.app, name="queues", rich_help_panel="Cluster")
app.add_typer(idle.app, name="idle", rich_help_panel="Cluster")
app.add_typer(plans.rollout, name="rollout", rich_help_panel="Cluster")
app.add_typer(plans.maintenance, name="maintenance", rich_help_panel="Cluster")
app.add_typer(plans.breaker, name="breaker", rich_help_panel="Cluster")
app.add_typer(agent.app, name="agent", rich_help_panel="Cluster")
app.add_typer(credentials.app, name="credentials", rich_help_panel="Cluster")
for _verb in (archive.key, archive.archive, archive.restore, archive.prove, archive.check):
    audit.app.command()(_verb)
audit.app.command("usage")(usage.audit_usage)
app.add_typer(audit.app, name="audit", rich_help_panel="The record")


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns its exit code (errors.py lists them)."""
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


def _fail(error: FairleadError, words: list[str]) -> int:
    """Say what was wrong and what helps; to those who asked for JSON, the API's own problem document."""
    wants_json = any(word in ("json", "--output=json", "-ojson") for word in words)
    if wants_json and error.problem is not None:
        terminal.write(terminal.document(error.problem, terminal.Format.json), sys.stderr)
    else:
        terminal.note(f"error: {error}")
        if error.hint:
            terminal.note(f"hint: {error.hint}")
    return error.exit_code
