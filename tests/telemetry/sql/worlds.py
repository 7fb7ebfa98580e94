"""Small worlds of three projects. Every name, id, word and number of a project's jobs can be reported from those of the others, and
changes with the project's `salt`: two worlds that differ in others' salts only must look the same to a member.
"""

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead_schemas.queries.telemetry import QueryCaller
from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from fairlead_schemas.wire.samples import GpuSample, RunResources, RunUse, SampleBatch, columns_of
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.usage.usage_store import UsageStore
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, ended, joined, offered, placed, started

PROJECTS = ("apple", "brick", "cloud")
FATES = ("waits", "runs", "done", "failed", "yields", "deferred", "kept")
SAMPLES = 3


class Plan(NamedTuple):
    """One job: of which project (its place in PROJECTS), of which of its users, in the project's name or in none, and its fate."""

    project: int
    user: int
    named: bool
    fate: str


class Salts(NamedTuple):
    """Which spelling of each project's words a world has."""

    apple: int = 0
    brick: int = 0
    cloud: int = 0


def member(project: int, salt: int = 0, *, projects: bool = True) -> QueryCaller:
    """The first user of the project; without `projects` one who sees own jobs only."""
    return QueryCaller(user=user(project, salt, 0), role="member", projects=(named(project, salt),) if projects else ())


def user(project: int, salt: int, number: int) -> str:
    return f"x{PROJECTS[project]}{salt}u{number}"


def named(project: int, salt: int) -> str:
    return f"{PROJECTS[project]}{salt}"


def job_id(project: int, salt: int, number: int) -> str:
    return f"9{project}{salt}7531{number:02}"


def marks_of(project: int) -> re.Pattern[str]:
    """What only this project's jobs hold: words and numbers."""
    return re.compile(rf"{PROJECTS[project]}|9{project}[0-9]7531[0-9][0-9]")


def warehouse_of(directory: Path, plans: list[Plan], salts: Salts) -> Path:
    """A copy of the warehouse of such a world: a day of samples in files, and some of the next day's."""
    warehouse = Warehouse(directory / "w")
    story, ids = story_of(plans, salts)
    store(warehouse, story)
    book = SampleBook({})
    for day in (0, 1):
        for n in range(1, SAMPLES + 1):
            second = n + day * DAY_NS // 10**9
            book.add(columns_of(_batch(plans, ids, salts, n + day * SAMPLES, second)))
        warehouse.store([], warehouse.cursor.heads, "a log", book.take())
        warehouse.roll_up(START_NS + day * DAY_NS + 10**14)
        if not day and any(plan.fate != "waits" for plan in plans):
            assert warehouse.file_samples(START_NS + DAY_NS + SETTLE_NS) == 1
    usage = UsageStore(warehouse)
    usage.catch_up()
    usage.save()
    copy = directory / "whole.duckdb"
    warehouse.copy_to(copy)
    warehouse.close()
    return copy


def _batch(plans: list[Plan], ids: list[str], salts: Salts, n: int, second: int) -> SampleBatch:
    gpus = [
        GpuSample(
            uuid=f"GPU-n{place}-0",
            run=f"{job}.1",
            utilization_pct=10 + 7 * salts[plan.project],
            power_mw=int(job),
            memory_used_mib=int(job),
            temperature_c=40 + salts[plan.project],
            sm_clock_mhz=1000 + salts[plan.project],
        )
        for place, (plan, job) in enumerate(zip(plans, ids, strict=True))
        if plan.fate != "waits"
    ]
    uses = [RunUse(uuid=gpu.uuid, run=gpu.run, memory_mib=gpu.memory_used_mib) for gpu in gpus]
    resources = [RunResources(run=gpu.run, cpu_ms=gpu.memory_used_mib + n) for gpu in gpus]
    return SampleBatch(
        node="n0", incarnation="a", n=n, at_ns=START_NS + second * 10**9, gpus=gpus, uses=uses, resources=resources
    )


def story_of(plans: list[Plan], salts: Salts) -> tuple[Story, list[str]]:
    story = Story()
    ids = [job_id(plan.project, salts[plan.project], n) for n, plan in enumerate(plans)]
    story.at(0, *(joined(f"n{n}", gpus=1) for n in range(len(plans) + 1)))
    story.at(0, ev.QueueConfigured(cause="cmd:q", path="research", gpu_quota_milli=64_000))
    for n, (plan, job) in enumerate(zip(plans, ids, strict=True)):
        other = ids[(n + 1) % len(ids)]
        _live(story, n, plan, job, salts[plan.project], other)
    story.at(900, ev.JobsRetired(cause="clock", jobs=tuple(ids)))
    return story, ids


def _live(story: Story, n: int, plan: Plan, job: str, salt: int, other: str) -> None:
    """One job's life. Whatever event can speak of another's job does: of `other`."""
    word, node = named(plan.project, salt), f"n{n}"
    spec = msgspec.Raw(msgspec.json.encode({"name": word, "command": ["train", f"--key={word}"]}))
    story.at(
        10 + n,
        ev.JobSubmitted(
            cause="cmd:1",
            job=job,
            name=f"{word}-job",
            queue="research",
            user=user(plan.project, salt, plan.user),
            project=word if plan.named else "",
            request=Request(gpu_milli=1000),
            spec=spec,
            key=f"{word}-key",
        ),
        ev.JobRejected(
            cause="cmd:2",
            command="c",
            code="no",
            message=f"{word} has no room",
            user=user(plan.project, salt, plan.user),
        ),
        offered(job),
    )
    if plan.fate == "deferred":
        story.at(20 + n, ev.JobDeferred(cause="1.0", job=job, attempt=1, reason="claimed", holder=other))
        story.at(
            20 + n,
            ev.PreemptionRequested(
                cause="1.0", job=job, attempt=1, victims=(ev.Victim(job=other, attempt=1, rule="over_slice"),)
            ),
        )
    if plan.fate == "kept":
        near = (ev.NearMiss(node="n0", job=other),)
        story.at(
            20 + n, ev.JobUnplaceable(cause="1.0", job=job, attempt=1, reasons={"free_gpus": 1}, nodes=2, near=near)
        )
        story.at(20 + n, ev.ReservationMade(cause="1.0", job=job, attempt=1, nodes=("n0",), waits_for=(other,)))
    if plan.fate not in ("runs", "done", "failed", "yields"):
        return
    part = msgspec.structs.replace(placed(job, **{node: 1}), guest_of=other, master_address=f"{word}.example")
    story.at(30 + n, part, started(job))
    if plan.fate == "yields":
        story.at(40 + n, ev.PreemptionStarted(cause="1.0", job=job, attempt=1, beneficiary=other, rule="over_slice"))
    if plan.fate != "runs":
        code = 0 if plan.fate == "done" else 3
        story.at(60 + n, ended(job, exit_code=code, released=(node,), message=f"{word} said bye"))
    if plan.fate == "done":
        story.at(61 + n, ev.JobSucceeded(cause="1.0", job=job, attempt=1))
    if plan.fate == "failed":
        story.at(61 + n, ev.JobFailed(cause="1.0", job=job, attempt=1, reason="exit_code", message=f"{word} failed"))
