"""`GET /v1/access/why` at past sequences, against a second, naive reading of the log: rights and places of things alike."""

from collections import Counter
from collections.abc import Iterable
from random import Random
from urllib.parse import urlencode

from fairlead_rights.access_list import Target
from fairlead_schemas.policies.rights import VERBS
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire import events as ev
from tests.gateway.gatehouse import Gatehouse
from tests.kit.eventually import eventually_async
from tests.rights import naive
from tests.rights.random_log import CAUSE, PEOPLE, event_of
from tests.telemetry.story import Story, submitted

COMMITS = 80
QUESTIONS = 1_000
#: Queues, by the pools in which they are, and those that come and go.
POOLS = {"research": "a100", "prod": "default", "lab": "default"}
JOBS = {"7": ("research", "llm", "ann"), "8": ("prod", "", "bob")}
THINGS = [
    "cluster",
    "pool:a100",
    "pool:default",
    "project:llm",
    "volume:data",
    "job:7",
    "job:8",
    "queue:research",
    "queue:research/vision",
    "queue:lab",
    "queue:prod",
]


def _queue(path: str) -> ev.QueueConfigured:
    return ev.QueueConfigured(**CAUSE, path=path, settings=QueueSettings(pool=POOLS.get(path, "")))


def _volume() -> ev.VolumeCreated:
    return ev.VolumeCreated(**CAUSE, volume="data", owner="project:llm", storage_class="shared", quota_bytes=1 << 30)


def _story(rng: Random) -> list[list[ev.Event]]:
    """Events of each commit: queues and jobs first, then access at random, with moves, and queues and a volume that come and go. At
    the end all are there: what is not there now is answered 404.
    """
    story: list[list[ev.Event]] = [
        [_queue(path) for path in (*POOLS, "research/vision")],
        [submitted(job, queue=queue, project=project, user=user) for job, (queue, project, user) in JOBS.items()],
        [_volume()],
        [ev.PrincipalAdmitted(**CAUSE, principal=person, kind="person") for person in PEOPLE],
    ]
    gone: set[str] = set()
    while len(story) < COMMITS:
        draw, path = rng.random(), rng.choice(("lab", "research/vision"))
        if draw < 0.1:
            story.append([ev.JobMoved(**CAUSE, job=rng.choice(list(JOBS)), queue=rng.choice(("research", "prod")))])
        elif draw < 0.2 and path not in gone:
            gone.add(path)
            story.append([ev.QueueRemoved(**CAUSE, path=path)])
        elif draw < 0.3:
            gone.discard(path)
            story.append([_queue(path)])
        elif draw < 0.34:
            story.append([ev.VolumeDeleted(**CAUSE, volume="data")])
            story.append([_volume()])
        else:
            events = [event_of(rng) for _ in range(rng.choice((1, 2, 4)))]
            story.append([each for each in events if not isinstance(each, ev.QueueConfigured | ev.QueueRemoved)])
    story.append([_queue("lab"), _queue("research/vision")])
    return [events for events in story if events]


def _target(log: Iterable[tuple[int, ev.Event]], sequence: int, on: str) -> Target:
    """Find a thing as of a sequence from the whole log; a job that was not there yet is where it is now."""
    kind, _, name = on.partition(":")
    if kind == "job":
        queue, project, owner = JOBS[name]
        moves = [(at, each.queue) for at, each in log if isinstance(each, ev.JobMoved) and each.job == name]
        until = sequence if sequence >= 2 else 1 << 62
        queue = next((queue for at, queue in reversed(moves) if at <= until), queue)
        return Target(queue, POOLS[queue], project, name, "", owner)
    if kind == "queue":
        return Target(queue=name, pool=POOLS[name.partition("/")[0]])
    if kind == "volume":
        return Target(volume=name, project="llm")
    return Target(**({kind: name} if name else {}))


async def test_why_agrees_with_a_naive_reading_of_the_log() -> None:
    """A thousand random questions at random sequences, over HTTP; both answers are frequent, and a yes names a reason."""
    rng = Random(7)
    story, log = Story(), list[tuple[int, ev.Event]]()
    for sequence, events in enumerate(_story(rng), start=1):
        story.at(sequence, *events)
        log += [(sequence, each) for each in events]
    states = {sequence: naive.state_at(log, sequence) for sequence, _ in log}
    found: Counter[bool] = Counter()
    async with Gatehouse() as house:
        await story.append_to(house.bus)
        await eventually_async(lambda: house.gateway.views.sequence == log[-1][0])
        # In the order of the log: the gateway keeps the views of a few moments.
        for sequence in sorted(rng.randint(1, log[-1][0]) for _ in range(QUESTIONS)):
            person, verb, on = rng.choice(PEOPLE), rng.choice(VERBS), rng.choice(THINGS)
            question = urlencode({"at": sequence, "subject": person, "verb": verb, "on": on})
            answer = (await house.http.get(f"/v1/access/why?{question}")).json()
            expected = states[sequence].may(person, verb, _target(log, sequence, on))
            assert answer["allowed"] == expected, (question, answer)
            assert answer["sequence"] == sequence
            if expected:
                assert answer["grants"] or answer["sentence"].endswith("it is their own"), answer
            else:
                assert answer["missing"] == verb
            found[expected] += 1
    assert min(found.values()) > QUESTIONS // 10, found
