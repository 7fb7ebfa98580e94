"""Expected warehouse rows of a log, computed by a plain Python fold; and stores without a bus."""

import json
from collections.abc import Sequence
from typing import Any

from fairlead_bus.log import Chain
from fairlead_bus.port import Stored
from fairlead_schemas.wire.commit import decode_envelope
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Cursor, Warehouse
from tests.telemetry.story import Story

COLUMNS = 'sequence, idx, writer, at_ns, type, job, attempt, node, queue, "user", cause, body'


class _Owners:
    """User and queue of every job, event by event."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, str]] = {}
        self._ended: set[str] = set()

    def take(self, event: dict[str, Any]) -> tuple[str | None, str | None]:
        """The user and the queue of the next event's row."""
        match event["type"]:
            case "JobSubmitted":
                self._of[event["job"]] = (event["user"], event["queue"])
            case "JobMoved":
                self._of[event["job"]] = (self._of[event["job"]][0], event["queue"])
            case "QueueRemoved" if event.get("move_to"):
                for job, (user, queue) in self._of.items():
                    if queue == event["path"] and job not in self._ended:
                        self._of[job] = (user, event["move_to"])
            case "JobSucceeded" | "JobFailed" | "JobCancelled":
                self._ended.add(event["job"])
        user, queue = self._of.get(event.get("job", "").split("_")[0], (None, None))
        named = (event.get("user"), event.get("by")), (event.get("queue"), event.get("path"))
        return next((one for one in named[0] if one), user), next((one for one in named[1] if one), queue)


def expected(payloads: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """The rows of `events` for a log's commits, in order, one by one and slowly."""
    rows: list[tuple[Any, ...]] = []
    owners = _Owners()
    for sequence, payload in enumerate(payloads, 1):
        commit = json.loads(payload)
        raw = decode_envelope(payload).events
        for idx, event in enumerate(commit["events"]):
            get = event.get
            user, queue = owners.take(event)
            rows.append(
                (
                    sequence,
                    idx,
                    commit["writer"],
                    commit["at_ns"],
                    get("type"),
                    get("job"),
                    get("attempt"),
                    get("node"),
                    queue,
                    user,
                    get("cause"),
                    bytes(raw[idx]).decode(),
                )
            )
    return rows


def actual(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    """The rows of `events` in order."""
    return warehouse.rows(f"SELECT {COLUMNS} FROM events ORDER BY sequence, idx")


def store(warehouse: Warehouse, story: Story, first: int = 0, count: int | None = None) -> Cursor:
    """Store a story's commits from index `first` on in one transaction."""
    chain = Chain(warehouse.cursor.sequence, warehouse.cursor.heads)
    commits: list[CommitBytes] = []
    for sequence, (subject, commit, payload) in list(enumerate(story.commits, 1))[first:][:count]:
        chain.extend(Stored(sequence, subject, payload), commit)
        commits.append(CommitBytes.of(sequence, decode_envelope(payload)))
    return warehouse.store(commits, chain.heads, "a log", SampleIntake([], [], {}))
