"""The only place where a subject, stream or bucket name is built or parsed."""

LOG = "LOG"
CMD = "CMD"
SAMPLE = "SAMPLE"
OUTPUT = "OUTPUT"
DESIRED = "DESIRED"
SPEC = "SPEC"
SNAPSHOT = "SNAPSHOT"
LEASE = "LEASE"

WRITERS = ("queue", "placer", "telemetry")

LOG_ALL = "fairlead.log.>"
CMD_ALL = "fairlead.cmd.>"
SAMPLE_ALL = "fairlead.sample.>"
OUTPUT_ALL = "fairlead.output.>"
BEATS = "fairlead.beat.*"
REPORTS = "fairlead.report.*"
#: Where questions to the folded state are asked (core request/reply; nothing stored).
ASK = "fairlead.ask"


def log(writer: str) -> str:
    """Where a writer's commits stand; the fence is per subject."""
    return f"fairlead.log.{writer}"


def writer_of(subject: str) -> str:
    """The writer whose commits stand under a log subject."""
    return subject.rpartition(".")[2]


def cmd(service: str) -> str:
    """Where a service's commands wait."""
    return f"fairlead.cmd.{service}"


def sample(node: str) -> str:
    """Where a node's samples go."""
    return f"fairlead.sample.{node}"


def output(node: str, job: str, attempt: int, rank: int) -> str:
    """Where a rank's output goes."""
    return f"fairlead.output.{node}.{job}.{attempt}.{rank}"


def output_of_job(job: str, attempt: int | None = None) -> str:
    """Filter for a job's output from all nodes (of one attempt)."""
    return f"fairlead.output.*.{job}.{attempt if attempt is not None else '*'}.*"


def parse_output(subject: str) -> tuple[str, str, int, int]:
    """(node, job, attempt, rank) of an output subject."""
    _, _, node, job, attempt, rank = subject.split(".")
    return node, job, int(attempt), int(rank)


def report(node: str) -> str:
    """Where a node's agent reports."""
    return f"fairlead.report.{node}"


def beat(node: str) -> str:
    """Where a node's agent says that it is alive."""
    return f"fairlead.beat.{node}"


def confirm(node: str) -> str:
    """Where the placer answers a node's agent."""
    return f"fairlead.confirm.{node}"


def node_of(subject: str) -> str:
    """The node named by a report, beat, confirm or sample subject."""
    return subject.rpartition(".")[2]


def rpc(service: str, verb: str) -> str:
    """Where a service answers requests (core request/reply; nothing stored)."""
    return f"fairlead.rpc.{service}.{verb}"


def rpc_node(node: str, verb: str) -> str:
    """Where a node's agent answers requests."""
    return f"fairlead.rpc.node.{node}.{verb}"
