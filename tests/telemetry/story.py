"""A small hand-made log, told event by event, and its commits' bytes with a whole hash chain."""

import msgspec

from fairlead_bus.port import Stored
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, Commit, commit_hash, encode_commit
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from tests.kit.commits import commit_of

START_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
WRITER_OF = {kind: writer for writer, kinds in ev.EVENTS_OF.items() for kind in kinds}


class Story:
    """Appends commits: `story.at(seconds, event, …)` is one decision of the writer that owns its events."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, Commit, bytes]] = []
        self._heads: dict[str, tuple[int, str]] = {}

    def at(self, seconds: float, *events: ev.Event) -> None:
        writer = WRITER_OF[type(events[0])]
        n, prev = self._heads.get(writer, (0, GENESIS))
        commit = commit_of(
            list(events),
            writer=writer,
            n=n + 1,
            basis=len(self.commits),
            at_ns=START_NS + int(seconds * SECOND_NS),
            cursors={"CMD": n + 1},
            prev=prev,
        )
        payload = encode_commit(commit)
        self._heads[writer] = (n + 1, commit_hash(payload))
        self.commits.append((subjects.log(writer), commit, payload))

    async def append_to(self, bus, first: int = 0) -> None:
        """Store the commits from index `first` on in the bus's log. The commands that they have read have been there."""
        for subject, _, payload in self.commits[first:]:
            await bus.append(subjects.LOG, subject, payload)
        read = max(commit.cursors[subjects.CMD] for _, commit, _ in self.commits)
        if (await bus.state(subjects.CMD)).last < read:
            await bus.advance(subjects.CMD, read)


def of_story(story: Story) -> list[Stored]:
    """Its commits as a log stores them."""
    return [Stored(sequence, subject, payload) for sequence, (subject, _, payload) in enumerate(story.commits, 1)]


def submitted(
    job: str, *, gpus: int = 1, nodes: int = 1, user: str = "ada", queue: str = "research", **more
) -> ev.JobSubmitted:
    """A job as the queue accepts it."""
    spec = msgspec.Raw(msgspec.json.encode({"name": f"job-{job}", "command": ["true"]}))
    request = Request(nodes=nodes, gpu_milli=gpus * 1000, cpu_milli=1000, memory_mib=512)
    return ev.JobSubmitted(
        cause=f"cmd:{job}", job=job, name=f"job-{job}", queue=queue, user=user, request=request, spec=spec, **more
    )


def offered(job: str, attempt: int = 1) -> ev.JobOffered:
    return ev.JobOffered(cause="1.0", job=job, attempt=attempt, rank=1)


def placed(job: str, attempt: int = 1, **gpus_of: int) -> ev.JobPlaced:
    """`placed("1", n1=2)`: two GPUs on node n1."""
    parts = tuple(
        ev.Part(node=node, gpus=tuple(f"GPU-{node}-{i}" for i in range(gpus)), cpu_milli=1000, memory_mib=512)
        for node, gpus in gpus_of.items()
    )
    return ev.JobPlaced(cause="1.0", job=job, attempt=attempt, parts=parts)


def started(job: str, attempt: int = 1) -> ev.RunStarted:
    return ev.RunStarted(cause="report:n1:2", job=job, attempt=attempt)


def ended(job: str, attempt: int = 1, exit_code: int | None = 0, released: tuple[str, ...] = (), **more) -> ev.RunEnded:
    outcome = more.pop("outcome", "exited")
    return ev.RunEnded(
        cause="report:n1:3", job=job, attempt=attempt, outcome=outcome, exit_code=exit_code, released=released, **more
    )


def joined(node: str, gpus: int = 2) -> ev.NodeJoined:
    devices = tuple(Gpu(uuid=f"GPU-{node}-{i}", index=i, model="NVIDIA A100", memory_mib=81920) for i in range(gpus))
    inventory = Inventory(gpus=devices, cpu_milli=64000, memory_mib=524288, simulated=True)
    return ev.NodeJoined(
        cause=f"report:{node}:1", node=node, incarnation=f"{node}-a", boot_id="b1", inventory=inventory
    )


def morning() -> Story:
    """One morning on two nodes: a success, a failure after a retry, a gang, an array, a cancelled and a held job."""
    s = Story()
    s.at(0, ev.QueueConfigured(cause="cmd:q", path="research", gpu_quota_milli=4000))
    s.at(1, joined("n1"), joined("n2"))
    # 1: two GPUs for 3600 s.
    s.at(10, submitted("1", gpus=2), offered("1"))
    s.at(12, placed("1", n1=2))
    s.at(13, started("1"))
    s.at(3612, ended("1", released=("n1",)))
    s.at(3613, ev.JobSucceeded(cause="6.0", job="1", attempt=1))
    # 2: fails, is tried again, fails for good.
    s.at(4000, submitted("2", user="bob", retries=1), offered("2"))
    s.at(4001, placed("2", n1=1))
    s.at(4002, started("2"))
    s.at(4101, ended("2", exit_code=3, released=("n1",)))
    s.at(4102, ev.JobRequeued(cause="11.0", job="2", attempt=2, reason="retry"), offered("2", 2))
    s.at(4103, placed("2", 2, n2=1))
    s.at(4104, started("2", 2))
    s.at(4203, ended("2", 2, exit_code=None, signal=9, released=("n2",)))
    s.at(4204, ev.JobFailed(cause="15.0", job="2", attempt=2, reason="exit_code", signal=9))
    # 3: a gang of two nodes that runs on; n1's rank has ended and given its GPUs back.
    s.at(5000, submitted("3", gpus=2, nodes=2), offered("3"))
    s.at(5010, placed("3", n1=2, n2=2))
    s.at(5011, ev.RankStarted(cause="report:n1:9", job="3", attempt=1, rank=0), started("3"))
    s.at(
        5110,
        ev.RankEnded(cause="report:n1:10", job="3", attempt=1, rank=0, outcome="exited", exit_code=0, released=True),
    )
    # 4: an array of three, one element done, one refused for want of GPUs.
    s.at(5200, submitted("4", gpus=0, user="bob", array=(0, 2)), offered("4_0"), offered("4_1"))
    s.at(
        5201,
        placed("4_0", n1=0),
        ev.JobUnplaceable(cause="1.0", job="4_1", attempt=1, reasons={"free_gpus": 2}, nodes=2),
    )
    s.at(5202, started("4_0"))
    s.at(5203, ended("4_0", released=("n1",)))
    s.at(5204, ev.JobSucceeded(cause="1.0", job="4_0", attempt=1))
    # 5 held, 6 cancelled while waiting, 7 scheduled for later, 8 stopping.
    s.at(5300, submitted("5"), ev.JobHeld(cause="cmd:h", job="5", by="ada"))
    s.at(5301, submitted("6"), ev.JobCancelled(cause="cmd:c", job="6", by="ada"))
    s.at(5302, submitted("7", start_at_ns=START_NS + 9000 * SECOND_NS))
    s.at(5303, submitted("8", gpus=0), offered("8"))
    s.at(5304, placed("8", n1=0))
    s.at(5305, ev.JobStopRequested(cause="cmd:s", job="8", attempt=1, reason="cancelled", by="ada"))
    s.at(5306, started("8"), ev.NodeCordoned(cause="cmd:k", node="n2", by="ada", reason="fan"))
    s.at(5310, ev.JobsRetired(cause="clock", jobs=("1",)))
    return s


def busy(jobs: int, per_commit: int = 7) -> Story:
    """Many short jobs, several events per commit, both writers in turn."""
    s = Story()
    s.at(0, joined("n1", gpus=8))
    for first in range(1, jobs + 1, per_commit):
        ids = [str(job) for job in range(first, min(first + per_commit, jobs + 1))]
        s.at(first, *(event for job in ids for event in (submitted(job), offered(job))))
        s.at(first, *(placed(job, n1=1) for job in ids))
        s.at(first, *(event for job in ids for event in (started(job), ended(job, released=("n1",)))))
        s.at(first + 1, *(ev.JobSucceeded(cause="1.0", job=job, attempt=1) for job in ids))
    return s
