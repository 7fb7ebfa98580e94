"""Images, present or pulled; one pull serves all runs that wait for it. `pulls.py` has its messages and failures.

A pull without waiting runs is aborted at once (the engine keeps whole layers, so the next pull continues
from there). A present image is not requested again, whatever its tag means elsewhere by now.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import docker.errors
from docker import auth
from docker.utils import parse_repository_tag

from fairlead_agent.runtimes.docker.engine import EngineLink, EngineRefused, answer, documents
from fairlead_agent.runtimes.docker.pulls import Failure, Progress, backoff_s, classify, refused
from fairlead_schemas.units.image_names import ImageNameError, Registries, parse_image

#: Without a word of progress for this long, a pull counts as broken off.
STALL_S = 300.0
#: Step of the percentages that are logged: each tenth.
LOGGED_STEP = 10
PUBLIC_ONLY = Registries()

Say = Callable[[str], None]


class Image(NamedTuple):
    """Image on this node: the engine's id, and the name by which others can get exactly this one."""

    id: str
    #: "name@sha256:…" as the registry knows it; the id of one that came from no registry.
    digest: str


class PullFailed(Exception):
    """The image cannot be had; `failure` says whose fault that is."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Pull:
    def __init__(self, image: str) -> None:
        self.progress = Progress(image)
        self.listeners: list[Say] = []
        self.task: asyncio.Task[None]

    def say(self, words: str) -> None:
        for listener in self.listeners:
            listener(words)


class Images:
    """The images of one engine."""

    def __init__(
        self,
        engine: EngineLink,
        registries: Registries = PUBLIC_ONLY,
        *,
        stall_s: float = STALL_S,
        patience: float = 1.0,
    ) -> None:
        """`patience`: what waits between tries are multiplied by (tests have less)."""
        self._engine = engine
        self._registries = registries
        self._stall_s = stall_s
        self._patience = patience
        self._pulls: dict[str, _Pull] = {}

    async def ready(self, name: str, say: Say) -> Image:
        """The image, pulled if it is missing; `say` hears how far that is. May be cancelled. Raises PullFailed and
        what the engine raises."""
        self._check(name)
        found = await self._here(name)
        if found is not None:
            return found
        pull = self._pulls.get(name)
        if pull is None:
            pull = self._pulls[name] = _Pull(name)
            pull.task = asyncio.ensure_future(self._pull(pull))
            pull.task.add_done_callback(lambda _: self._pulls.pop(name, None))
        pull.listeners.append(say)
        say(pull.progress.words())
        try:
            await asyncio.shield(pull.task)
        finally:
            pull.listeners.remove(say)
            if not pull.listeners and not pull.task.done():
                self._pulls.pop(name, None)
                pull.task.cancel()
        found = await self._here(name)
        if found is None:
            raise PullFailed(classify(name, 0, "it was pulled but is missing: it was removed from outside Fairlead"))
        say(f"image {name} is here: {found.digest}")
        return found

    def _check(self, name: str) -> None:
        """Refuse names that would make another request of the engine, or send it where it must not go. Raises PullFailed."""
        try:
            fault = self._registries.fault(parse_image(name).registry)
        except ImageNameError as error:
            raise PullFailed(classify(name, 400, str(error))) from error
        if fault:
            raise PullFailed(refused(name, fault))

    async def _here(self, name: str) -> Image | None:
        try:
            inspected = await self._engine.call(lambda api: api.inspect_image(name))
        except docker.errors.NotFound:
            return None
        except docker.errors.APIError as error:
            if error.status_code == 400:
                raise PullFailed(classify(name, 400, str(error.explanation))) from error
            raise
        return Image(inspected["Id"], digest_of(name, inspected))

    async def _pull(self, pull: _Pull) -> None:
        failed = 0
        while True:
            failure = await self._try(pull)
            if failure is None:
                return
            failed += 1
            wait_s = backoff_s(failed) if failure.again else None
            if wait_s is None:
                raise PullFailed(failure)
            pull.say(f"{failure.message}; tried again in {wait_s:.0f} s ({failed} failed)")
            await asyncio.sleep(wait_s * self._patience)

    async def _try(self, pull: _Pull) -> Failure | None:
        name = pull.progress.image
        try:
            repository, tag = parse_repository_tag(name)
            registry, _ = auth.resolve_repository_name(repository)
            headers = await self._engine.call(lambda api: auth.get_config_header(api, registry))
            query = {"fromImage": repository, "tag": tag or "latest"}
            sent = {"X-Registry-Auth": headers.decode()} if headers else {}
            async with answer(self._engine.socket, "POST", "/images/create", query, sent) as reader:
                lines = aiter(documents(reader))
                while True:
                    async with asyncio.timeout(self._stall_s):
                        line = await anext(lines, None)
                    if line is None:
                        return None
                    if wrong := _take(pull, line):
                        return classify(name, 0, wrong)
        except EngineRefused as error:
            return classify(name, error.status, error.words)
        except docker.errors.InvalidRepository as error:
            return classify(name, 400, str(error))
        except TimeoutError:
            return classify(name, 0, f"timeout: no progress for {self._stall_s:.0f} s")
        except OSError as error:
            return classify(name, 0, f"broke off: {error}")


def _take(pull: _Pull, line: dict[str, Any]) -> str:
    """Apply one line of progress and pass it on to the waiting runs. Return the error, or ""."""
    progress = pull.progress
    before, began = progress.percent // LOGGED_STEP, bool(progress.bytes[1])
    wrong = progress.take(line)
    if progress.percent // LOGGED_STEP > before or (not began and progress.bytes[1]):
        pull.say(progress.words())
    return wrong


def digest_of(name: str, inspected: dict[str, Any]) -> str:
    """By which name exactly this image can be had: the digest of the repository it was asked from, if known."""
    digests: list[str] = list(inspected.get("RepoDigests") or ())
    repository, _ = parse_repository_tag(name)
    same = [digest for digest in digests if digest.partition("@")[0] == repository]
    return (same or digests or [inspected["Id"]])[0]
