"""`fairlead demo`: a private stack, a small team's morning on it, and a table of what became of it.

Plays `demo_story.STORY` through the public client only, as anybody could, and checks the outcome twice: against
the API, and by verifying the log from its first commit. Start at `play`.
"""

import time
from collections.abc import Callable
from typing import Any

from fairlead.client import Client
from fairlead.demo_idle import IdleScene
from fairlead.demo_story import EXPLORE, FINETUNE, NODES, QUEUE_FILE, STORY, Part, Say, Told, differences
from fairlead.errors import FairleadError, Refused, WaitTimedOut
from fairlead_schemas.http.api import Job
from fairlead_schemas.wire.lifecycle import END_STATES

#: Each step must be done in this time; a step that is not is the demo's failure, and it says which.
STEP_S = 60.0
LOOK_S = 0.1


class Morning:
    """The story while it is played."""

    def __init__(self, client: Client, say: Say) -> None:
        self._client = client
        self._say = say
        self._ids: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._refusals: dict[str, tuple[str, str]] = {}
        self._waited: dict[str, tuple[str, str]] = {}

    def play(self) -> dict[str, Told]:
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
        told = {part.key: self._told(part) for part in (*STORY, EXPLORE, FINETUNE)}
        return {key: one._replace(why=whys.get(key, "")) for key, one in told.items()}

    def elements(self) -> dict[str, Job]:
        """The array's elements."""
        array = self._ids["sweep"]
        return {job.id: job for job in self._client.jobs().items if job.id.startswith(f"{array}_")}

    def output_of(self, key: str) -> str:
        """A job's whole output."""
        return b"".join(self._client.logs(self._ids[key])).decode(errors="replace")

    def _submit(self, part: Part) -> None:
        try:
            result = self._client.submit(part.spec)
        except Refused as error:
            code = error.problem.type.rpartition(":")[2] if error.problem else ""
            self._refusals[part.key] = (code, str(error))
            self._say("refused", f"{part.spec['name']:<10} {error}")
            return
        if not result.id:
            raise FairleadError(f"{part.spec['name']}: the queue service did not answer")
        self._ids[part.key] = result.id
        self._say(f"job {result.id}", f"{part.spec['name']:<10} {size(part.spec):<11} {part.told}")

    def _catch_why(self, part: Part) -> None:
        """Ask why it waits, while it waits: the answer is the placer's or the queue's own, so it takes a moment."""
        answer: dict[str, Any] = {}

        def answered() -> bool:
            nonlocal answer
            answer = self._client.why(self._ids[part.key])
            return answer["reason"]["code"] == part.waits

        self._until(f"{part.spec['name']} says why it waits", answered)
        self._waited[part.key] = (answer["reason"]["code"], answer["reason"]["message"])
        self._say("why", f"job {self._ids[part.key]} {part.spec['name']} waits: {answer['reason']['message']}")

    def _job(self, part: Part) -> Job:
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

    def _told(self, part: Part) -> Told:
        job = self._client.job(self._ids[part.key]) if part.key in self._ids else None
        return Told(part, job, self._refusals.get(part.key, ("", "")), self._waited.get(part.key, ("", "")))


def size(spec: dict[str, Any]) -> str:
    """`2 x 8 GPUs`, `8 x 1 GPU`, `1 GPU`."""
    gpus = spec["resources"]["nvidia.com/gpu"]
    times = spec.get("nodes") or spec.get("array")
    return f"{f'{times} x ' if times else ''}{gpus} GPU{'s' if gpus != 1 else ''}"


def play(client: Client, say: Say) -> tuple[dict[str, Told], list[str], str]:
    """Play the morning: (what became of each part, what is not as it must be, the gang's output)."""
    morning = Morning(client, say)
    told = morning.play()
    output = morning.output_of("train")
    wrong = differences(told, morning.elements())
    ranks = [f"rank {rank} of 2" for rank in range(2)]
    wrong += [f"train: its output lacks {rank!r}" for rank in ranks if rank not in output]
    return told, wrong, output


__all__ = ["NODES", "Morning", "play", "size"]
