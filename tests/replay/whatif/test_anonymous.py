"""Anonymous load files: nothing personal is left of any event, and the play is the same."""

import gzip
import itertools
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_bus.port import Stored
from fairlead_replay.whatif.anonymous import JOBS, KEPT, NameBook
from fairlead_replay.whatif.load_file import read_load
from fairlead_replay.whatif.record import LogWindow, record_of
from fairlead_replay.whatif.replays import play_recording
from fairlead_replay.whatif.sources import LoadExport
from fairlead_schemas.queuefile.settings import Preemption, QueueSettings
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit, encode_commit
from fairlead_schemas.wire.events import Event
from tests.replay.whatif.scenes import Scene, at, queues, request

CANARY = "Canary"
EVENTS = typing.get_args(Event.__value__ if isinstance(Event, typing.TypeAliasType) else Event)


def filled(hint: Any, numbers: Iterator[int]) -> Any:
    """Return a value of a type in which every open text is a canary of its own."""
    if isinstance(hint, typing.TypeAliasType):
        return filled(hint.__value__, numbers)
    origin, below = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return below[0]
    if origin is typing.Annotated:
        return filled(below[0], numbers)
    if hint is str:
        return f"{CANARY}{next(numbers)}"
    if hint is msgspec.Raw:
        return msgspec.Raw(b'{"command":["%s%d"]}' % (CANARY.encode(), next(numbers)))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint)
        own = {name: filled(hints[name], numbers) for name in hint.__struct_fields__ if name != "also"}
        return hint(**own)
    if origin is dict:
        return {filled(below[0], numbers): filled(below[1], numbers)}
    if origin in (tuple, list):
        made = [filled(each, numbers) for each in below if each is not Ellipsis]
        return tuple(made) if origin is tuple else made
    if below:  # a union: its first part that is not None
        return filled(next(each for each in below if each is not type(None)), numbers)
    return {int: 7, bool: True, float: 1.5}.get(hint)


def commit_of(event: Any) -> Commit:
    """Return a commit with one event."""
    return Commit(
        v=VERSION, writer="queue", n=1, basis=0, at_ns=1, cursors={f"report.{CANARY}0": 3}, prev=GENESIS, events=[event]
    )


def canaries(value: Any, field: str = "") -> set[str]:
    """Return the fields in which a canary is left."""
    match value:
        case str():
            return {field} if CANARY.lower() in value.lower() else set()
        case dict() if field == "users":
            return set().union(*(canaries(k, field) | canaries(v, "amounts") for k, v in value.items()), set())
        case dict():
            return set().union(
                *(canaries(k, field) | canaries(v, k if isinstance(k, str) else field) for k, v in value.items()), set()
            )
        case list():
            return set().union(*(canaries(each, field) for each in value), set())
        case _:
            return set()


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_no_text_of_any_event_is_left(kind: type[msgspec.Struct]) -> None:
    """Every text field of every event type is a canary. Left are only those of `KEPT`: hardware and closed words."""
    commit = commit_of(filled(kind, itertools.count(1)))
    names = NameBook()
    names.note(commit)
    left = canaries(msgspec.json.decode(encode_commit(names.disguised(commit))))
    assert {each for each in left if not each.startswith(CANARY)} <= KEPT


def test_what_is_kept_is_no_name() -> None:
    """A reminder for whoever adds to the list: fields of people, places and free text are not in it."""
    assert not KEPT & {
        "user",
        "by",
        "name",
        "node",
        "queue",
        "path",
        "pool",
        "project",
        "reason",
        "message",
        "image",
        "spec",
        "labels",
    }
    assert not KEPT & JOBS


def personal_scene() -> Scene:
    """Return a scene whose every name is personal."""
    scene = Scene(gpus=4)
    plain = QueueSettings(preemption=Preemption(protect_ns=0), users={"ada.lovelace": {"gpu": 8000}})
    scene.command(-1, queues(**{"payroll": plain, "payroll-secret": QueueSettings()}))
    for n in range(12):
        scene.submit(
            n * 10,
            1 + n % 4,
            30,
            queue=("payroll", "payroll-secret")[n % 2],
            user=("ada.lovelace", "charles@babbage.org")[n % 2],
            name=f"<b>merger-{n}</b>",
            project="difference-engine",
            key=f"ada-{n}",
            request=request(
                1 + n % 4, selector=("fairlead/node!=gone.example.org",), tolerations=("team=countess:NoSchedule",)
            ),
        )
    scene.command(60, cmd.HoldJob(id="hold-by-ada", user="ada.lovelace", job="9"))
    scene.command(70, cmd.ReleaseJob(id="release-by-ada", user="ada.lovelace", job="9"))
    scene.command(80, cmd.DrainNode(id="drain", user="charles@babbage.org", node="n002", reason="ada spilled her tea"))
    scene.command(120, cmd.UncordonNode(id="back", user="charles@babbage.org", node="n002"))
    return scene


WORDS = (
    *(
        "ada",
        "lovelace",
        "charles",
        "babbage",
        "payroll",
        "secret",
        "merger",
        "difference",
        "engine",
        "tea",
        "countess",
    ),
    *("example.org", "n001", "n002", "hold-by", "team"),
)


def saved(path: Path, log: list[Stored], window: LogWindow = LogWindow()) -> dict[str, str]:  # noqa: B008 -- a constant
    """Write the anonymous load file of a log; return the replacements."""
    export = LoadExport(window, anonymous=True)
    for read in (export.note, export.take):
        for stored in log:
            if not read(stored):
                break
    return export.finish(path).names


@pytest.mark.parametrize("begin_s", [0, 65])
def test_nothing_personal_is_in_the_file(tmp_path: Path, begin_s: int) -> None:
    """Names, addresses, free text, idempotency keys, job files: neither in what was given nor in the state at the start."""
    log = personal_scene().play(400)[0]
    path = tmp_path / "day.load.jsonl.gz"
    saved(path, log, LogWindow(at(begin_s) if begin_s else 0))
    _, recording = read_load(path)
    text = gzip.decompress(path.read_bytes()).decode()
    text += "".join(snapshot.decode("utf-8", "replace") for snapshot in recording.start.snapshots.values())
    assert [word for word in WORDS if word in text] == []


def test_the_play_is_the_same(tmp_path: Path) -> None:
    """Replacements keep the order of names, by which the cores break ties: every job starts and ends as in the log's own play."""
    log = personal_scene().play(400)[0]
    names = saved(tmp_path / "day.load.jsonl.gz", log)
    _, disguised = read_load(tmp_path / "day.load.jsonl.gz")
    plain, other = play_recording(record_of(log)), play_recording(disguised)
    assert plain.events == other.events
    for id_ in plain.books.jobs:
        some, others = plain.books.jobs[id_], other.books.jobs[id_]
        assert (some.first_start_ns, some.ended_ns, some.end) == (others.first_start_ns, others.ended_ns, others.end)
        assert [names[node] for each in some.attempts for node in each.nodes] == [
            n for each in others.attempts for n in each.nodes
        ]


def test_a_name_is_replaced_alike_everywhere(tmp_path: Path) -> None:
    """A user of a queue's limits is the user of the submits; queues keep their tree; the default queue keeps its name."""
    names = saved(tmp_path / "day.load.jsonl.gz", personal_scene().play(400)[0])
    assert names["ada.lovelace"].startswith("user-")
    assert names["payroll"].startswith("queue-")
    assert "default" not in names
    _, recording = read_load(tmp_path / "day.load.jsonl.gz")
    users = {job.submitted.user for job in recording.real.jobs.values()}
    assert users == {names["ada.lovelace"], names["charles@babbage.org"]}
