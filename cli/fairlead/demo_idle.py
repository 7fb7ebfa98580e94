"""Scene of the demo with an abandoned session: its owner is notified, extends it once, and then a waiting job gets its
GPUs.

The session reports unused GPUs (they are simulated); the telemetry service detects the idleness on its own. The
policy's seconds are the demo's: real policies have minutes.
"""

from collections.abc import Callable
from typing import Any

from fairlead import idle_words
from fairlead.client import Client
from fairlead.demo_story import EXPLORE, FINETUNE, Part, Say
from fairlead_schemas.http.api import IdleStatus, Job

#: In the words of a policy file.
POLICY: dict[str, Any] = {
    "rule": "utilization", "kinds": ["session"], "below": {"gpu": "5%"}, "after": "5s", "notice": "5s", "action": "stop",
    "mode": "on_demand", "extend": "10s", "extensions": 1,
}  # fmt: skip


class IdleScene:
    """The session and the job that gets its GPUs, once the morning is over: until then nothing may count as idle, so that a slow
    machine plays the same story."""

    def __init__(
        self, client: Client, say: Say, job: Callable[[Part], Job], submit: Callable[[Part], None],
        until: Callable[[str, Callable[[], bool]], None],
    ) -> None:  # fmt: skip
        self._client, self._say, self._job, self._submit, self._until = client, say, job, submit, until

    def play(self) -> dict[str, str]:
        """Play the scene: notice, extension, second notice, request to return the GPUs, and reclaim as soon as another job waits.
        Returns {part: its why}.
        """
        self._client.set_idle_policies("global", [POLICY])
        after, notice = POLICY["after"], POLICY["notice"]
        self._say(
            "policy",
            f"sessions whose GPUs stay below 5 % for {after} go to whoever waits {notice} later (the demo's seconds)",
        )
        self._submit(EXPLORE)
        self._tell(self._idle("lies idle", lambda idle: not idle.asked or idle.mode == "on_demand"))
        job = self._job(EXPLORE)
        self._client.extend(job.id)
        self._say("action", f"job {job.id} {job.name} is extended once by its owner, for {POLICY['extend']}")
        self._until("the extension counts", lambda: self._job(EXPLORE).extended_until is not None)
        self._tell(self._idle("is asked back when the extension is over", lambda idle: idle.asked))
        self._say("idle", f"nobody waits for what job {job.id} holds, so it runs on")
        self._submit(FINETUNE)
        self._until("finetune runs", lambda: self._job(FINETUNE).state == "running")
        self._until("explore has ended", lambda: self._job(EXPLORE).state == "failed")
        told = {part.key: self._why(part) for part in (FINETUNE, EXPLORE)}
        self._client.cancel(self._job(FINETUNE).id)
        return told

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
        told = idle_words.standing(job.idle, idle_words.now())
        self._say("idle", f"job {job.id} {job.name}: {told} ({job.idle.words})")

    def _why(self, part: Part) -> str:
        job = self._job(part)
        told = str(self._client.why(job.id)["reason"]["message"])
        self._say("why", f"job {job.id} {job.name}: {told}")
        return told
