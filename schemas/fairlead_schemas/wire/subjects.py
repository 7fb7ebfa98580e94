"""The only place where a subject, stream or bucket name is built or parsed."""

import zlib
from collections.abc import Iterable
from functools import lru_cache

LOG = "LOG"
CMD = "CMD"
SAMPLE = "SAMPLE"
OUTPUT = "OUTPUT"
DESIRED = "DESIRED"
SPEC = "SPEC"
SNAPSHOT = "SNAPSHOT"
LEASE = "LEASE"
#: Names, addresses and sign-in identities of principals; and digests of tokens, sessions and passwords. Outside the log, erasable.
PEOPLE = "PEOPLE"
CREDENTIAL = "CREDENTIAL"
#: Rules of notifications, with addresses and keys, and how far each destination is. Outside the log, erasable.
NOTIFY = "NOTIFY"
#: The record of access, a chain for each person.
AUDIT = "AUDIT"
#: Pieces of directories that go with jobs, sealed (bus/fairlead_bus/pieces.py), and when each was last sent.
PIECE = "PIECE"

WRITERS = ("queue", "placer", "telemetry", "access", "storage")

LOG_ALL = "fairlead.log.>"
CMD_ALL = "fairlead.cmd.>"
SAMPLE_ALL = "fairlead.sample.*"
AUDIT_ALL = "fairlead.audit.*"
OUTPUT_ALL = "fairlead.output.>"
#: Output subjects of a node. A fixed number, so that a bound per subject bounds what a node can store (ADR 0020).
OUTPUT_SHARDS = 32
BEATS = "fairlead.beat.*"
REPORTS = "fairlead.report.*"
GANGS = "fairlead.gang.*.*"
#: Where nodes ask which volumes a run may have (volumes.py), each in its own name.
VOLUMES = "fairlead.volumes.*"
#: Where processes of services state that they run.
PRESENCES = "fairlead.presence.*"
#: Where questions to the folded state are asked (core request/reply; nothing stored).
ASK = "fairlead.ask"
#: Where the gateway asks for documents as of a past moment.
PAST = "fairlead.past"
#: Where the gateway asks the same process for estimates of starts.
ESTIMATES = "fairlead.estimates"


def log(writer: str) -> str:
    """Return the subject of a writer's commits; the fence is per subject."""
    return f"fairlead.log.{writer}"


@lru_cache(64)
def writer_of(subject: str) -> str:
    """The writer whose commits stand under a log subject."""
    return subject.rpartition(".")[2]


def cmd(service: str) -> str:
    """Return the subject on which a service's commands wait."""
    return f"fairlead.cmd.{service}"


def sample(node: str) -> str:
    """Return the subject of a node's samples."""
    return f"fairlead.sample.{node}"


def output(node: str, job: str) -> str:
    """Return the subject of the output of a job's ranks on a node; other jobs of the node may have the same subject."""
    return f"fairlead.output.{node}.{zlib.crc32(job.encode()) % OUTPUT_SHARDS}"


def outputs_of_node(node: str) -> str:
    """Return the subject pattern of all output of a node."""
    return f"fairlead.output.{node}.*"


def output_shards() -> tuple[str, ...]:
    """Subjects under which output is stored: no others, whatever a node's key may publish to."""
    return tuple(f"fairlead.output.*.{shard}" for shard in range(OUTPUT_SHARDS))


def outputs_of_job(job: str, nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the subjects of a job's output on its nodes, each once."""
    return tuple({output(node, job): None for node in nodes})


def audit(principal: str) -> str:
    """Return the subject of a person's record of access."""
    return f"fairlead.audit.{principal}"


def node_of_output(subject: str) -> str:
    """The node named by an output subject."""
    return subject.split(".")[2]


def report(node: str) -> str:
    """Return the subject of an agent's reports."""
    return f"fairlead.report.{node}"


def beat(node: str) -> str:
    """Return the subject of an agent's heartbeats."""
    return f"fairlead.beat.{node}"


def confirm(node: str) -> str:
    """Return the subject of the placer's answers to an agent."""
    return f"fairlead.confirm.{node}"


def spec_key(node: str, digest: str) -> str:
    """A job file's key in the SPEC bucket: each node has its own, so that it may read these and no others."""
    return f"{node}.{digest}"


def piece_key(address: str) -> str:
    """Return the key of a sealed piece in the PIECE bucket; nodes may read these."""
    return f"data.{address}"


def piece_time_key(address: str) -> str:
    """Return the key of the time at which a piece was last sent."""
    return f"at.{address}"


def presence(service: str) -> str:
    """Return the subject on which the processes of a service state that they run."""
    return f"fairlead.presence.{service}"


def node_of(subject: str) -> str:
    """The node named by a report, beat, confirm or sample subject."""
    return subject.rpartition(".")[2]


def gang(speaker: str, node: str) -> str:
    """Return the subject of one agent's request to another about a run of both nodes."""
    return f"fairlead.gang.{speaker}.{node}"


def volumes(node: str) -> str:
    """Return the subject of a node's questions about the volumes of its runs."""
    return f"fairlead.volumes.{node}"


def parse_gang(subject: str) -> tuple[str, str]:
    """Return (sending node, receiving node)."""
    _, _, speaker, node = subject.split(".")
    return speaker, node


def rpc(service: str, verb: str) -> str:
    """Return the subject of a service's requests (core request/reply; nothing stored)."""
    return f"fairlead.rpc.{service}.{verb}"


def rpc_node(node: str, verb: str) -> str:
    """Return the subject of requests to a node's agent."""
    return f"fairlead.rpc.node.{node}.{verb}"
