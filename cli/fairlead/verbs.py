"""Verbs of the `fairlead` command: name, one line of help and the module of each, which is imported when the verb is typed.

Imports of all verbs take ten times as long as one verb needs, and users wait for them at every command line. So the
list of verbs and `fairlead --help` are made of `VERBS` alone. A test compares its help lines with those of the verbs.
Start at `LazyGroup.resolve_command`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Verb(NamedTuple):
    """Verb with its help panel, and where its function or its group of verbs is defined ("jobs:show")."""

    panel: str
    name: str
    target: str
    #: First paragraph of its help; "" for hidden verbs.
    help: str = ""

    @property
    def hidden(self) -> bool:
        """True for verbs that no list shows."""
        return not self.help


#: In the order of the help text.
VERBS: tuple[Verb, ...] = (
    Verb(
        "Start here", "demo", "demo:demo", "Watch a small team's morning on four simulated 8-GPU nodes; ends by itself."
    ),
    Verb(
        "Start here",
        "up",
        "stack:up",
        "Start a cluster on this machine: bus, services, nodes. Ctrl-C stops it; jobs' processes live on.",
    ),
    Verb(
        "Start here",
        "down",
        "stack:down",
        "Stop the cluster on this machine. Running jobs continue and waiting ones wait, unless --jobs; the data stays.",
    ),
    Verb(
        "Start here",
        "doctor",
        "doctor:doctor",
        "Look at this machine: exit code 0 when a cluster can run here, or the node that it is can take work; 1 otherwise.",
    ),
    Verb("Start here", "login", "sign_in:login", "Sign in at a cluster, and make it the current context."),
    Verb(
        "Start here",
        "logout",
        "sign_in:logout",
        "End the sign-in at the current context, or at that of --context, and forget its tokens.",
    ),
    Verb("Access", "whoami", "sign_in:whoami", "Say who you are for the cluster, your groups, and your roles."),
    Verb("Jobs", "submit", "submit:submit", "Submit a job and print its id."),
    Verb(
        "Jobs",
        "run",
        "run:run",
        "Run a command or script as a job: wait, show its output, and exit with its exit code.",
    ),
    Verb(
        "Jobs",
        "jobs",
        "jobs:jobs",
        "List jobs: those that have not ended, and those that ended in the last day. An array is one line.",
    ),
    Verb("Jobs", "show", "jobs:show", "Show everything about jobs."),
    Verb(
        "Jobs",
        "why",
        "jobs:why",
        "Say why a job is where it is: one reason, its evidence, what would start it now, the next step.",
    ),
    Verb(
        "Jobs",
        "logs",
        "jobs:logs",
        "Print a job's output. To a terminal colours are kept and other control sequences left out, unless --raw.",
    ),
    Verb(
        "Jobs",
        "cp",
        "cp:cp",
        "Copy files of a job's own directory, or its kept outputs, to this machine; without a destination, list them.",
    ),
    Verb(
        "Jobs",
        "exec",
        "enter:exec_",
        "Run a command inside a running job, where and as its program runs; exit with the command's exit code.",
    ),
    Verb(
        "Jobs",
        "attach",
        "enter:attach",
        "Follow a job's output until it has ended, and exit with its exit code. Ctrl-C leaves the job as it is.",
    ),
    Verb(
        "Jobs",
        "ssh",
        "ssh:ssh",
        "Connect to a running job by OpenSSH: a shell, a command, files, forwarded ports.",
    ),
    Verb(
        "Jobs",
        "port-forward",
        "port_forward:port_forward",
        "Forward ports of this machine to ports inside a running job, until Ctrl-C.",
    ),
    Verb(
        "Jobs",
        "wait",
        "jobs:wait",
        "Wait until jobs have ended; exit with the first failure's own code (0: all succeeded).",
    ),
    Verb(
        "Jobs",
        "cancel",
        "jobs:cancel",
        "End jobs, waiting or running (an array with all its elements), or send their programs a signal.",
    ),
    Verb(
        "Jobs",
        "session",
        "session:session",
        "Start an application in the browser, such as a notebook; list, open, share or stop sessions.",
    ),
    Verb(
        "Jobs",
        "service",
        "service:service",
        "Submit, list, scale or stop services, and make or revoke their keys.",
    ),
    Verb("Jobs", "open", "session:open_app", "Open the application of a running session in the browser."),
    Verb("Jobs", "hold", "jobs:hold", "Keep waiting jobs from starting."),
    Verb("Jobs", "release", "jobs:release", "End a hold."),
    Verb(
        "Jobs",
        "update",
        "job_changes:update",
        "Change the time limit, priority, name or labels of jobs that wait or run (an array with all its elements).",
    ),
    Verb(
        "Jobs",
        "requeue",
        "job_changes:requeue",
        "End the present run of jobs and let them wait for another one, which uses up no retry.",
    ),
    Verb("Jobs", "move", "queues:move", "Put waiting jobs into another queue."),
    Verb("Jobs", "extend", "idle:extend", "Keep idle jobs: no idle policy acts on them for a while."),
    Verb(
        "Cluster",
        "nodes",
        "nodes:nodes",
        "List nodes with their free resources, draw them, describe one in detail, or remove some permanently.",
    ),
    Verb("Cluster", "cordon", "nodes:cordon", "Give nodes no new work; their present runs continue."),
    Verb("Cluster", "uncordon", "nodes:uncordon", "Give nodes work again (ends a drain, too)."),
    Verb("Cluster", "drain", "nodes:drain", "Empty nodes: no new work, and at the deadline their jobs go elsewhere."),
    Verb("Cluster", "taint", "nodes:taint", "Keep work that does not tolerate the taint from nodes."),
    Verb(
        "Cluster",
        "untaint",
        "nodes:untaint",
        "Remove nodes' taints that match (key, key:Effect or key=value:Effect), but those that health or the node itself has set.",
    ),
    Verb(
        "Cluster",
        "quarantine",
        "nodes:quarantine",
        "Give nodes no work until they are released; their present runs continue.",
    ),
    Verb("Cluster", "unquarantine", "nodes:unquarantine", "End nodes' quarantine, or the suspicion against them."),
    Verb(
        "Cluster",
        "restore",
        "nodes:restore",
        "Use a faulted GPU of a node again; without one, what is wrong with the node itself is over.",
    ),
    Verb(
        "Cluster",
        "declare-dead",
        "nodes:declare_dead",
        "Say that nothing runs on lost nodes any more, so that their jobs may start elsewhere, strict ones, too.",
    ),
    Verb(
        "Cluster",
        "packing",
        "packing:packing",
        "Show the packing of a pool and its free resources, or choose its policy.",
    ),
    Verb(
        "Cluster",
        "defrag",
        "packing:defrag",
        "Show which runs would be moved for jobs that fit nowhere though enough GPUs are free.",
    ),
    Verb(
        "Cluster",
        "top",
        "top:top",
        "Watch nodes and jobs, and what running ones make of their GPUs: the mean of their utilisation, memory and power of all of them.",
    ),
    Verb(
        "Cluster",
        "status",
        "upgrade:status",
        "Show which processes lead or wait, the bus's servers with their copies, versions, and the level of the log's format.",
    ),
    Verb("Cluster", "backup", "backup:app", "Back up a cluster, check a backup, or restore one."),
    Verb("Cluster", "bus", "bus:app", "Move a cluster to other servers of the bus."),
    Verb("Cluster", "upgrade", "upgrade:upgrade", "See if everything is upgraded, and let a newer level be written."),
    Verb(
        "The record", "events", "events:events", "Print events of the log: time, id, what, about whom, caused by what."
    ),
    Verb(
        "The record",
        "changes",
        "events:changes",
        "Print the events that lead from the cluster at one moment to that at another, oldest first.",
    ),
    Verb("The record", "sql", "sql:sql", "Ask the warehouse in SQL (DuckDB, read-only). Ctrl-C cancels the query."),
    Verb(
        "The record",
        "usage",
        "usage:usage",
        "Show who had how many GPU-hours of which model in a month or between two times, and what they cost.",
    ),
    Verb(
        "The record",
        "estimates",
        "jobs:estimates",
        "Show how right the estimates of starts were: by queue, then those that were furthest off.",
    ),
    Verb("The record", "prices", "usage:prices_app", "List the prices of GPUs, or set one from a moment on."),
    Verb(
        "The record",
        "replay",
        "audit:replay",
        "Fold the log to a sequence or a time with the services' own code and print what it amounts to.",
    ),
    Verb(
        "The record",
        "whatif",
        "whatif:whatif",
        "Say what a part of the log would have been under another policy, and how far that can be believed. Exit code 7 means that it cannot.",
    ),
)
#: Hidden.
ALIASES: tuple[Verb, ...] = (
    Verb("", "squeue", "slurm_lists:squeue"),
    Verb("", "sinfo", "slurm_lists:sinfo"),
    Verb("", "scontrol", "slurm_lists:scontrol"),
    Verb("", "sprio", "slurm_lists:sprio"),
    Verb("", "sshare", "slurm_lists:sshare"),
    Verb("", "seff", "slurm_lists:seff"),
    Verb("", "sbatch", "slurm:sbatch_verb"),
    Verb("", "srun", "slurm:srun"),
    Verb("", "scancel", "slurm_lists:scancel"),
    Verb("", "sacct", "slurm_lists:sacct"),
)
#: Verbs that have verbs of their own.
GROUPS: tuple[Verb, ...] = (
    Verb("Cluster", "queues", "queues:app", "List queues as a tree, or change them."),
    Verb(
        "Cluster", "idle", "idle:app", "List jobs that lie idle: since when, what follows and when, and the evidence."
    ),
    Verb("Cluster", "rollout", "plans:rollout", "List rolling upgrades, or run one."),
    Verb("Cluster", "maintenance", "plans:maintenance", "List maintenance windows, or schedule one."),
    Verb(
        "Cluster", "breaker", "plans:breaker", "Say whether nodes are acted upon automatically, or let them be again."
    ),
    Verb("Files", "volumes", "storage:volumes", "List, make, resize, share or delete volumes."),
    Verb("Files", "datasets", "storage:datasets", "List, add, fetch or retire versions of datasets."),
    Verb("Cluster", "agent", "agent:app", "Make this machine a node."),
    Verb("Cluster", "credentials", "credentials:app", "Users of the bus and their keys."),
    Verb("Start here", "context", "sign_in:context", "List, choose, add or remove clusters by name."),
    Verb(
        "Access",
        "access",
        "access:app",
        "Give and take roles, and say why somebody may do something: a subject is a role in a scope.",
    ),
    Verb("Access", "people", "people:people", "List people, add local users, suspend or forget people."),
    Verb(
        "Access",
        "service-accounts",
        "people:service_accounts",
        "List or add service accounts: programs that have roles.",
    ),
    Verb("Access", "tokens", "people:tokens", "List, make or revoke tokens."),
    Verb("The record", "audit", "audit:app", "Check or export the log."),
    Verb("The record", "policy", "policy:app", "Test a policy against recorded loads."),
    Verb(
        "The record",
        "notify",
        "notify:app",
        "Send events of your jobs, queues and nodes to a webhook or by mail, by rules of your own.",
    ),
)


class LazyGroup(TyperGroup):
    """Group whose commands stand for verbs that are not imported yet: they have names and help, and nothing else."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._verbs = {verb.name: verb for verb in (*VERBS, *ALIASES, *GROUPS)}
        for verb in self._verbs.values():
            self.add_command(TyperCommand(verb.name, help=verb.help, hidden=verb.hidden, rich_markup_mode=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the verb itself with its name and remaining words: from here on its module is imported."""
        if args and args[0] not in self._verbs and not args[0].startswith("-"):
            _refuse_foreign(args)
        name, _, rest = super().resolve_command(ctx, args)
        return name, self.loaded(name) if name else None, rest

    def loaded(self, name: str) -> Any:
        """Return the command, or group of commands, of a verb."""
        return load(self._verbs[name])


def _refuse_foreign(words: list[str]) -> None:
    """Raise InputRefused for a verb of another system, with what to type here. Others are left to Typer, which compares spellings."""
    from fairlead.errors import InputRefused
    from fairlead.foreign_verbs import ours

    instead = ours(words)
    if instead:
        raise InputRefused(f'there is no "fairlead {words[0]}"', hint=instead)


def load(verb: Verb) -> Any:
    """Import the module of a verb, and return the verb as a command, or group of commands, of Typer."""
    module_name, _, attribute = verb.target.partition(":")
    module = import_module(f"fairlead.commands.{module_name}")
    found: typer.Typer | Callable[..., None] = getattr(module, attribute)
    parent = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    parent.callback()(_nothing)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=verb.name, rich_help_panel=verb.panel)
    else:
        settings = getattr(module, "TYPER_SETTINGS", {}).get(verb.name, {})
        parent.command(verb.name, hidden=verb.hidden, rich_help_panel=verb.panel, **settings)(found)
    group = typer.main.get_command(parent)
    assert isinstance(group, TyperGroup)
    return group.commands[verb.name]


def _nothing() -> None:
    """Callback without effect: without one, Typer makes no group of a single command."""
