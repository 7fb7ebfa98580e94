"""Conditions: the closed list of reasons why a cluster cannot work, or not in full.

Each has a code, a sentence with numbers, and the commands to type. A service that ends upon one logs it, the gateway
lists those that it sees in `/readyz`, and `fairlead up` and `fairlead doctor` print them: the same words everywhere.
A new kind of condition is a new code and a row in `CONDITIONS`, from which docs/how-to/troubleshooting.md is generated.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

#: Exit code of a service that cannot read its log: only a person can help, so a supervisor does not start it again.
EXIT_DAMAGED = 70
#: Exit code of a service whose commands are lost: start it again after a pause, the loss may have been accepted.
EXIT_COMMANDS_LOST = 74
#: Exit code of a part of a process whose place another process has taken: it becomes a standby.
EXIT_STEPPED_DOWN = 75

#: Exit code of a service that met a level of the log's format which it does not know: install the newer version, start it again.
EXIT_NEWER = 76

type ConditionCode = Literal[
    "log_damaged",
    "log_format",
    "log_newer",
    "commands_lost",
    "bus_away",
    "commands_refused",
    "commands_full",
    "queue_silent",
    "placer_silent",
    "queue_stalled",
    "placer_stalled",
    "views_behind",
    "log_full",
    "access_silent",
    "storage_silent",
    "telemetry_silent",
    "explainer_silent",
    "clock_differs",
    "clock_stepped",
    "agent_refuses",
    "nodes_unheard",
    "certificate_expires",
]


class Remedy(NamedTuple):
    """Command that helps, and its purpose."""

    command: str
    purpose: str


class ConditionKind(NamedTuple):
    """All that is known of a condition beforehand."""

    #: Sentences for docs/how-to/troubleshooting.md.
    meaning: str
    remedies: tuple[Remedy, ...]
    #: True: jobs are not accepted or not run while it holds, so `/readyz` answers 503.
    blocks: bool = True


_DOCTOR = Remedy("fairlead doctor", "on the machine of a local stack shows which process is missing")
_LOGS = Remedy(
    "journalctl -u 'fairlead-*'", "or docker compose logs, or DATA/logs of a local stack: the last line has the reason"
)
_DISK = Remedy("df -h", "on the server's machine shows whether its store_dir is full: make room")
_RESTART = Remedy(
    "systemctl restart nats-server",
    "or docker compose restart nats: with room there again the server keeps its write error until then; a local stack "
    "restarts it by itself",
)

_SET_CLOCK = Remedy("chronyc makestep", "on that machine sets its clock, if it is the clock that is wrong")

CONDITIONS: Mapping[ConditionCode, ConditionKind] = {
    "log_damaged": ConditionKind(
        "Part of the log is missing or changed. Services stop where they find that; the scrub finds the rest.",
        (
            Remedy("fairlead audit verify", "names the first bad commit"),
            Remedy("fairlead audit restore SOURCE --data NEW", "makes a new log from an archive or an export"),
        ),
    ),
    "log_format": ConditionKind(
        "A version of Fairlead with another log format wrote the log. It is not damaged. An export or an archive of it has its "
        "format, too, and cannot be restored here.",
        (
            Remedy("fairlead up --data NEW", "starts an empty cluster with the installed version"),
            Remedy("pip install WHEEL", "of the version that wrote the log: it reads the log as before"),
        ),
    ),
    "log_newer": ConditionKind(
        "The level of the log was raised to one that this process does not know: it is of an older version. Nothing is damaged.",
        (
            Remedy("fairlead upgrade plan", "lists processes with their versions and levels"),
            Remedy("pip install WHEEL", "of the newer version on this machine, then start the process again"),
        ),
    ),
    "commands_lost": ConditionKind(
        "The server has lost commands that it had acknowledged.",
        (
            Remedy("fairlead audit commands", "lists the sequences that are gone"),
            Remedy("fairlead audit commands --accept-loss", "lets the cluster continue without them"),
        ),
    ),
    "bus_away": ConditionKind(
        "nats-server does not answer the gateway.",
        (Remedy("systemctl status nats-server", "or docker compose ps nats: shows whether it runs"), _DOCTOR),
    ),
    "commands_refused": ConditionKind(
        "nats-server does not store commands. Usually its disk is full, or was: the server keeps a write error until it "
        "is restarted.",
        (_DISK, _RESTART),
    ),
    "commands_full": ConditionKind(
        "The stream of commands has reached its size limit.",
        (Remedy("nats stream edit CMD --max-bytes 2GiB", "raises the limit; commands older than a week go by themselves"),),
    ),
    "queue_silent": ConditionKind(
        "The queue service does not answer, or does not hold its lease: no job is accepted or offered.", (_DOCTOR, _LOGS)
    ),
    "placer_silent": ConditionKind(
        "The placer service does not answer, or does not hold its lease: no job is started.", (_DOCTOR, _LOGS)
    ),
    "queue_stalled": ConditionKind(
        "The queue service answers but commits nothing: the server refuses its commits, or it does not read the log.",
        (_DISK, _RESTART),
    ),
    "placer_stalled": ConditionKind(
        "The placer service answers but commits nothing: the server refuses its commits, or it does not read the log.",
        (_DISK, _RESTART),
    ),
    "views_behind": ConditionKind(
        "The gateway has not read the log up to its end, so its answers would be old.",
        (Remedy("curl localhost:8080/readyz", "shows whether `sequence` approaches `log_end`; otherwise restart it"),),
    ),
    "log_full": ConditionKind(
        "The log is close to its size limit: no new jobs are accepted, running jobs continue.",
        (Remedy("FAIRLEAD_LOG_MAX_BYTES=…", "in the environment of the services raises it; restart them"),),
    ),
    "access_silent": ConditionKind(
        "The access service does not answer: nothing changes who may do what, nobody signs in and no token expires; jobs run.",
        (_DOCTOR, _LOGS),
        blocks=False,
    ),
    "storage_silent": ConditionKind(
        "The storage service does not answer: volumes and datasets are neither made, resized nor deleted; jobs run with those that exist.",
        (_DOCTOR, _LOGS),
        blocks=False,
    ),
    "telemetry_silent": ConditionKind(
        "The telemetry service does not answer: SQL, usage and idle policies are away; jobs run.", (_DOCTOR, _LOGS), blocks=False
    ),
    "agent_refuses": ConditionKind(
        "An agent does not start on its node, such as one whose journal is damaged: the node takes no work, and jobs on it "
        "cannot end before its lease is over.",
        (
            Remedy("fairlead doctor --node", "on that node shows which check fails"),
            Remedy("mv JOURNAL JOURNAL.damaged", "lets a node with a damaged journal join again; its runs end"),
        ),
        blocks=False,
    ),
    "nodes_unheard": ConditionKind(
        "Nodes that are not lost yet have sent nothing for a while, or nothing since the gateway's start.",
        (Remedy("fairlead nodes", "lists them as silent; look at the agent's log there"),),
        blocks=False,
    ),
    "certificate_expires": ConditionKind(
        "The gateway's TLS certificate has expired, will within 14 days, or is not valid yet. Clients refuse it from its end on.",
        (Remedy("certbot renew", "or what else renews it; the gateway takes new files by itself, within seconds"),),
        blocks=False,
    ),
    "explainer_silent": ConditionKind(
        "The explainer does not answer: `why` and dry runs give less detail; jobs run.", (_DOCTOR, _LOGS), blocks=False
    ),
    "clock_differs": ConditionKind(
        "A service's wall clock differs from the bus's server and from most nodes: log time does not follow it, and a "
        "service that starts with it does not lead.",
        (_SET_CLOCK, Remedy("date", "on the machines of the services, the server and the nodes shows which clock is wrong")),
        blocks=False,
    ),
    "clock_stepped": ConditionKind(
        "A service's wall clock was set. Log time creeps to it; no run is ended because of it, times that are shown are "
        "off by the distance.",
        (_SET_CLOCK, Remedy("fairlead events", "shows each step as an event, with its size")),
        blocks=False,
    ),
}  # fmt: skip


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Condition that holds now."""

    code: ConditionCode
    #: A sentence: what was expected, what was found, which sequences.
    message: str
    #: Added to the last command of its remedies.
    arguments: str = ""

    @property
    def blocks(self) -> bool:
        """True when jobs are not accepted or not run while it holds."""
        return CONDITIONS[self.code].blocks

    def hint(self, data: str = "", *, asked: str = "") -> str:
        """Return the commands to type, in order. `data` is named as `--data` where a command needs one; the command `asked`
        has been typed already and is left out."""
        remedies = [remedy for remedy in CONDITIONS[self.code].remedies if remedy.command != asked]
        commands = [remedy.command for remedy in remedies]
        commands[-1] = f"{commands[-1]} {self.arguments}".rstrip()
        return "; ".join(
            f"`{_on(command, data)}` {remedy.purpose}" for command, remedy in zip(commands, remedies, strict=True)
        )


class Readiness(msgspec.Struct, kw_only=True):
    """The body of `/readyz`."""

    ready: bool
    #: True while the bus answers.
    bus: bool = False
    #: The sequence that the gateway's views stand at, and the log's last one when it was last asked for.
    sequence: int = 0
    log_end: int = 0
    #: Worst first. `ready` is False exactly when one of them blocks.
    conditions: list[Condition] = []
    #: {code: the commands to type} of these.
    remedies: dict[str, str] = {}
    nodes: "NodesHeard" = msgspec.field(default_factory=lambda: NodesHeard())
    #: The background check of the whole log; None while the explainer has not answered.
    scrub: "Scrubbed | None" = None


#: Names in `NodesHeard.unheard`.
UNHEARD_MAX = 200
#: Exit code of an agent that refuses to work on its node: its journal is damaged, its devices or its engine do not fit.
EXIT_UNFIT = 78

#: The verb under which each service answers `Alive` (`subjects.rpc`).
ALIVE = "alive"


class Scrubbed(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the scrub, which reads the whole log in the background."""

    #: Passes that have ended.
    passes: int = 0
    #: The pass in progress has checked up to `sequence`, of a log that ended at `end` when it began.
    sequence: int = 0
    end: int = 0
    #: The first damaged sequence that the newest complete pass found, and the reason; 0 where the log was whole.
    damaged: int = 0
    reason: str = ""

    def changed(self, **fields: int | str) -> "Scrubbed":
        """Return the same with some fields replaced."""
        return msgspec.structs.replace(self, **fields)


class NodesHeard(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes by the beats that this gateway has received."""

    #: Nodes that are not lost, and those of them that beat.
    known: int = 0
    heard: int = 0
    #: Names of the others, at most UNHEARD_MAX: silent, or without a heartbeat since the gateway's start.
    unheard: list[str] = []


class Alive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A service's sign of life, answered by the leader; without one, by a process whose clock keeps it from leading."""

    #: Folded up to here.
    sequence: int
    #: The reason for which the server does not store the commit in progress; "" while there is none.
    refused: str = ""
    #: Of the explainer only.
    scrub: Scrubbed | None = None
    #: How its machine's clock differs from the others'; "" while it agrees.
    clock: str = ""
    #: The distance from log time to its machine's clock; positive: the clock is ahead.
    clock_lag_ms: int = 0
    #: Random word of the process that answers (`ProcessPresence.word`).
    word: str = ""


#: Between two signs of presence of a process, and after how long without one it counts as gone.
PRESENCE_S, PRESENCE_LOST_S = 2.0, 10.0


class ProcessPresence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of a service states that it runs, leading or not, and what it can read."""

    service: str
    #: Name of the process (FAIRLEAD_INSTANCE, or host and process id).
    instance: str
    #: Random word of the process, which tells apart two of one name.
    word: str = ""
    version: str = ""
    #: The highest level of the log's format that it knows (levels.py).
    level: int = 1
    #: True for the last one, when it ends in order.
    leaves: bool = False


encode_presence = msgspec.json.Encoder().encode
decode_presence = msgspec.json.Decoder(ProcessPresence).decode

encode_alive = msgspec.json.Encoder().encode
decode_alive = msgspec.json.Decoder(Alive).decode


def _on(command: str, data: str) -> str:
    if not data or "--data" in command or not command.startswith("fairlead "):
        return command
    return f"{command} --data {data}"
