"""`fairlead demo`: a private stack, a small team's morning on it, and a table of what became of it.

Further parts:
- the morning that `fairlead demo` plays: its jobs, and what must become of each;
- the scene with an abandoned session: its owner is notified, extends it once, and then a waiting job gets its GPUs.

Plays `demo_story.STORY` through the public client only, as anybody could, and checks the outcome twice: against
the API, and by verifying the log from its first commit. Start at `play`.

Every wait in it ends by something that the story does (a cancel frees its GPUs), never by luck of
timing, so the outcome is the same on a fast and on a slow machine. Nothing but the processes' length is made up:
they are real processes; the GPUs are simulated.

The session reports unused GPUs (they are simulated); the telemetry service detects the idleness on its own. The
policy's seconds are the demo's: real policies have minutes.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairlead.client import Client
from fairlead.errors import FairleadError, InputRefused, WaitTimedOut
from fairlead.render import columns
from fairlead_schemas.http.api import IdleStatus, Job
from fairlead_schemas.wire.lifecycle import END_STATES

NODES = 4
GPUS_PER_NODE = 8

#: The queue file of the morning: both teams may use all, but vision holds at most 8 GPUs.
QUEUE_FILE: dict[str, Any] = {
    "queues": {"research": {"queues": {"llm": {}, "vision": {"maximum": {"nvidia.com/gpu": 8}}}}}
}

_RANK = 'echo "rank $NODE_RANK of $NNODES, master $MASTER_ADDR:$MASTER_PORT, $GPUS_PER_NODE GPUs here"; sleep 2'
_LONG = ["sleep", "3600"]


class StoryPart(NamedTuple):
    """Job of the story with its expected outcome."""

    key: str
    spec: dict[str, Any]
    state: str
    exit_code: int | None = None
    #: The reason that it must give while it waits; "" when it need not wait.
    waits: str = ""
    #: Nodes that it must have run on; 0: it must never have had one.
    nodes: int = 1
    #: Code of the refusal, where it must not even enter.
    refused: str = ""
    summary: str = ""
    #: What its `why` must say at the end; "" for anything.
    why: str = ""


def _job(name: str, queue: str, gpus: int, command: list[str], **more: Any) -> dict[str, Any]:
    resources = {"nvidia.com/gpu": gpus, "cpu": "1", "memory": "256Mi"}
    return {"name": name, "queue": queue, "command": command, "resources": resources, "time": {"grace": "1s"}, **more}


STORY: tuple[StoryPart, ...] = (
    StoryPart(
        "notebook",
        _job("notebook", "research/vision", 2, _LONG, kind="session"),
        "cancelled",
        summary="a session; its owner ends it",
    ),
    StoryPart(
        "train",
        _job("train-llm", "research/llm", 8, ["sh", "-c", _RANK], nodes=2),
        "succeeded",
        0,
        nodes=2,
        summary="a gang: 2 nodes x 8 GPUs, all or nothing",
    ),
    StoryPart(
        "eval",
        _job("eval", "research/vision", 8, ["sleep", "0.5"]),
        "succeeded",
        0,
        waits="maximum",
        summary="over its queue's maximum until the notebook ends",
    ),
    StoryPart(
        "sweep",
        _job("sweep", "research/llm", 1, ["sleep", "1"], array=8),
        "succeeded",
        nodes=0,
        summary="an array of 8",
    ),
    StoryPart(
        "broken",
        _job("broken", "research/llm", 1, ["sh", "-c", "echo no data >&2; exit 3"]),
        "failed",
        3,
        summary="its own exit code 3",
    ),
    StoryPart(
        "huge",
        _job("huge", "research/llm", 8, _LONG, nodes=NODES + 1),
        "cancelled",
        waits="larger_than_cluster",
        nodes=0,
        summary="more than the cluster has: waits for nodes",
    ),
    StoryPart(
        "wide",
        _job("wide", "research/llm", 16, _LONG),
        "",
        nodes=0,
        refused="larger_than_any_node",
        summary="more GPUs per node than any node has",
    ),
    StoryPart("oops", _job("oops", "research/llm", 1, _LONG), "cancelled", summary="started by mistake, cancelled"),
)
#: The session says of its simulated GPUs that they do nothing, one line each, and stays open.
_LEFT_OPEN = 'for gpu in $(echo "$FAIRLEAD_GPUS" | tr , " "); do echo "$gpu 4000 0%"; done > "$FAIRLEAD_SIMULATED_GPUS/$$"; exec sleep 3600'
EXPLORE = StoryPart(
    "explore",
    _job("explore", "research/llm", 2, ["sh", "-c", _LEFT_OPEN], kind="session"),
    "failed",
    summary="a session left open: idle, extended once, reclaimed",
    why="idle under the utilization policy of global (GPU at most 0 % of 5 %",
)
FINETUNE = StoryPart(
    "finetune",
    _job("finetune", "research/llm", 8, _LONG, nodes=NODES),
    "cancelled",
    nodes=NODES,
    summary="needs every GPU: gets those left idle, too",
    why="gave back: idle under the utilization policy of global",
)


class PartResult(NamedTuple):
    """Actual outcome of one part."""

    part: StoryPart
    job: Job | None
    #: Code and message of the refusal.
    refusal: tuple[str, str] = ("", "")
    #: Code and message that `why` gave while it waited.
    waited: tuple[str, str] = ("", "")
    #: The message of its `why` at the end, where it was asked for.
    why: str = ""


def differences(results: Mapping[str, PartResult], elements: Mapping[str, Job]) -> list[str]:
    """Everything that is not as the story has it, one line each; empty: all as expected.

    `elements` are the array's elements by id.
    """
    found: list[str] = []
    for part in (*STORY, EXPLORE, FINETUNE):
        if part.key not in results:
            found.append(f"{part.key}: nothing became of it")
            continue
        found += [f"{part.key}: {what}" for what in _part_differences(results[part.key])]
    ended = sorted(job.state for job in elements.values())
    _expect(found, "sweep: its elements", ["succeeded"] * 8, ended)
    return found


def _part_differences(result: PartResult) -> list[str]:
    part, job, found = result.part, result.job, list[str]()
    _expect(found, "refusal", part.refused, result.refusal[0])
    if part.waits:
        _expect(found, "reason while it waited", part.waits, result.waited[0])
    if part.why and part.why not in result.why:
        found.append(f"why: expected {part.why!r} in {result.why!r}")
    if part.refused or job is None:
        if job is None and not part.refused:
            found.append("was not submitted")
        return found
    _expect(found, "state", part.state, job.state)
    if part.exit_code is not None:
        _expect(found, "exit code", part.exit_code, job.exit_code)
    if part.nodes:
        _expect(found, "nodes", part.nodes, len(job.nodes))
        gpus = part.spec["resources"]["nvidia.com/gpu"]
        _expect(found, "GPUs on each node", [gpus] * part.nodes, [len(job.gpus.get(node, [])) for node in job.nodes])
    elif not job.array:
        _expect(found, "nodes", [], job.nodes)
    return found


def _expect(found: list[str], what: str, expected: object, real: object) -> None:
    if expected != real:
        found.append(f"{what}: expected {expected!r}, found {real!r}")


def outcome(result: PartResult) -> str:
    """Return the text of one cell of the final table."""
    if result.refusal[0]:
        return "refused"
    if result.job is None:
        return "-"
    if (
        result.job.state == "failed"
        and result.job.reason is not None
        and result.job.reason.detail.get("reason") == "idle"
    ):
        return "failed (idle)"
    ended = f" (exit {result.job.exit_code})" if result.job.exit_code and result.job.state == "failed" else ""
    return result.job.state + ended


type Say = Callable[[str, str], None]


#: In the words of a policy file.
POLICY: dict[str, Any] = {
    "rule": "utilization",
    "kinds": ["session"],
    "below": {"gpu": "5%"},
    "after": "5s",
    "notice": "5s",
    "action": "stop",
    "mode": "on_demand",
    "extend": "10s",
    "extensions": 1,
}


class IdleScene:
    """The session and the job that gets its GPUs, once the morning is over: until then nothing may count as idle, so that a slow
    machine plays the same story."""

    def __init__(
        self,
        client: Client,
        say: Say,
        job: Callable[[StoryPart], Job],
        submit: Callable[[StoryPart], None],
        until: Callable[[str, Callable[[], bool]], None],
    ) -> None:
        self._client, self._say, self._job, self._submit, self._until = client, say, job, submit, until

    def play(self) -> dict[str, str]:
        """Play the scene: notice, extension, second notice, request to return the GPUs, and reclaim as soon as another job waits.
        Returns {part: its why}.
        """
        self._client.set_idle_policies("global", [POLICY])
        after, notice = POLICY["after"], POLICY["notice"]
        self._say(
            "policy",
            f"sessions whose GPUs stay below 5 % for {after} go to a waiting job {notice} later (the demo's seconds)",
        )
        self._submit(EXPLORE)
        self._tell(self._idle("is idle", lambda idle: not idle.asked or idle.mode == "on_demand"))
        job = self._job(EXPLORE)
        self._client.extend(job.id)
        self._say("action", f"job {job.id} {job.name} is extended once by its owner, for {POLICY['extend']}")
        self._until("the extension counts", lambda: self._job(EXPLORE).extended_until is not None)
        self._tell(self._idle("is asked back when the extension is over", lambda idle: idle.asked))
        self._say("idle", f"no job waits for what job {job.id} holds, so it keeps running")
        self._submit(FINETUNE)
        self._until("finetune runs", lambda: self._job(FINETUNE).state == "running")
        self._until("explore has ended", lambda: self._job(EXPLORE).state == "failed")
        reasons = {part.key: self._why(part) for part in (FINETUNE, EXPLORE)}
        self._client.cancel(self._job(FINETUNE).id)
        return reasons

    def _idle(self, what: str, wanted: Callable[[IdleStatus], bool]) -> Job:
        """The session as soon as a policy says so of it."""
        found: Job = self._job(EXPLORE)

        def is_so() -> bool:
            nonlocal found
            found = self._job(EXPLORE)
            return found.idle is not None and wanted(found.idle)

        self._until(f"explore {what}", is_so)
        return found

    def _tell(self, job: Job) -> None:
        assert job.idle is not None
        status = columns.standing(job.idle, time.time_ns())
        self._say("idle", f"job {job.id} {job.name}: {status} ({job.idle.words})")

    def _why(self, part: StoryPart) -> str:
        job = self._job(part)
        message = str(self._client.why(job.id)["reason"]["message"])
        self._say("why", f"job {job.id} {job.name}: {message}")
        return message


#: Each step must be done in this time; a step that is not is the demo's failure, and it says which.
STEP_S = 60.0
LOOK_S = 0.1


class DemoPlayer:
    """The story while it is played."""

    def __init__(self, client: Client, say: Say) -> None:
        self._client = client
        self._say = say
        self._ids: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._refusals: dict[str, tuple[str, str]] = {}
        self._waited: dict[str, tuple[str, str]] = {}

    def play(self) -> dict[str, PartResult]:
        """All of it, in order. Raises WaitTimedOut naming the step that did not come to its end."""
        self._client.apply_queues(QUEUE_FILE)
        self._say("queues", "research/llm (no maximum), research/vision (at most 8 GPUs)")
        for part in STORY:
            self._submit(part)
            if part.key == "notebook":
                # The maximum must be in use before the job that is to wait for it.
                self._until("notebook runs", lambda: self._state("notebook") == "running")
        for part in STORY:
            if part.waits:
                self._catch_why(part)
        self._until("oops runs", lambda: self._state("oops") == "running")
        self._client.cancel(self._ids["oops"])
        self._until("train-llm has ended", lambda: self._state("train") in END_STATES)
        self._client.cancel(self._ids["notebook"])
        self._say(
            "action", f"job {self._ids['notebook']} notebook is ended by its owner; its 2 GPUs are vision's again"
        )
        self._until("eval has ended", lambda: self._state("eval") in END_STATES)
        self._client.cancel(self._ids["huge"])
        self._until("all have ended", lambda: all(self._state(key) in END_STATES for key in self._ids))
        whys = IdleScene(self._client, self._say, self._job, self._submit, self._until).play()
        self._until("finetune has ended", lambda: self._state(FINETUNE.key) in END_STATES)
        results = {part.key: self._result(part) for part in (*STORY, EXPLORE, FINETUNE)}
        return {key: one._replace(why=whys.get(key, "")) for key, one in results.items()}

    def elements(self) -> dict[str, Job]:
        """The array's elements."""
        array = self._ids["sweep"]
        return {job.id: job for job in self._client.jobs().items if job.id.startswith(f"{array}_")}

    def output_of(self, key: str) -> str:
        """A job's whole output."""
        return b"".join(self._client.logs(self._ids[key])).decode(errors="replace")

    def _submit(self, part: StoryPart) -> None:
        try:
            result = self._client.submit(part.spec)
        except InputRefused as error:
            code = error.problem.type.rpartition(":")[2] if error.problem else ""
            self._refusals[part.key] = (code, str(error))
            self._say("refused", f"{part.spec['name']:<10} {error}")
            return
        if not result.id:
            raise FairleadError(f"{part.spec['name']}: the queue service did not answer")
        self._ids[part.key] = result.id
        self._say(f"job {result.id}", f"{part.spec['name']:<10} {size(part.spec):<11} {part.summary}")

    def _catch_why(self, part: StoryPart) -> None:
        """Ask why it waits, while it waits: the answer is the placer's or the queue's own, so it takes a moment."""
        answer: dict[str, Any] = {}

        def answered() -> bool:
            nonlocal answer
            answer = self._client.why(self._ids[part.key])
            return answer["reason"]["code"] == part.waits

        self._until(f"{part.spec['name']} has a reason for waiting", answered)
        self._waited[part.key] = (answer["reason"]["code"], answer["reason"]["message"])
        self._say("why", f"job {self._ids[part.key]} {part.spec['name']} waits: {answer['reason']['message']}")

    def _job(self, part: StoryPart) -> Job:
        return self._client.job(self._ids[part.key])

    def _state(self, key: str) -> str:
        job = self._client.job(self._ids[key])
        where = f"  {','.join(job.nodes)}" if job.nodes else ""
        if job.state != self._shown.get(key) and job.state in (*END_STATES, "running"):
            self._say(f"job {job.id}", f"{job.name:<10} {job.state.upper()}{where}")
        self._shown[key] = job.state
        return job.state

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STEP_S
        while not condition():
            for key in self._ids:
                self._state(key)
            if time.monotonic() > deadline:
                states = ", ".join(f"{key} {state}" for key, state in self._shown.items())
                raise WaitTimedOut(f'"{what}" did not come true within {STEP_S:g} s; jobs: {states}')
            time.sleep(LOOK_S)

    def _result(self, part: StoryPart) -> PartResult:
        job = self._client.job(self._ids[part.key]) if part.key in self._ids else None
        return PartResult(part, job, self._refusals.get(part.key, ("", "")), self._waited.get(part.key, ("", "")))


def size(spec: dict[str, Any]) -> str:
    """`2 x 8 GPUs`, `8 x 1 GPU`, `1 GPU`."""
    gpus = spec["resources"]["nvidia.com/gpu"]
    times = spec.get("nodes") or spec.get("array")
    return f"{f'{times} x ' if times else ''}{gpus} GPU{'s' if gpus != 1 else ''}"


def play(client: Client, say: Say) -> tuple[dict[str, PartResult], list[str], str]:
    """Play the morning: (what became of each part, what is not as it must be, the gang's output)."""
    morning = DemoPlayer(client, say)
    results = morning.play()
    output = morning.output_of("train")
    wrong = differences(results, morning.elements())
    ranks = [f"rank {rank} of 2" for rank in range(2)]
    wrong += [f"train: its output lacks {rank!r}" for rank in ranks if rank not in output]
    return results, wrong, output


__all__ = ["NODES", "DemoPlayer", "play", "size"]
