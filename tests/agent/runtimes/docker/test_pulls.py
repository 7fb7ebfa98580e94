"""Missing images: pulled from a real registry over HTTP, with reports of progress and of failures."""

import asyncio
import io
import secrets
import shutil
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import docker
import docker.errors
import pytest

from fairlead_agent.core.runs import Exit, Found, RunKey
from fairlead_agent.runtimes.docker.engine import EngineLink
from fairlead_agent.runtimes.docker.images import Image, Images, PullFailed
from fairlead_agent.runtimes.docker.pulls import MEANS, Failure, Kind, Progress, backoff_s, classify
from fairlead_agent.runtimes.docker.runtime import PULLING, UNWANTED, DockerRuntime
from fairlead_schemas.wire.events import StartFault
from tests.agent.runtime_watch import Watch, incarnation, launch, until_file
from tests.agent.runtimes.docker.image import SOCKET, root_file_system
from tests.agent.runtimes.docker.registry import ON_LOOPBACK, Registry

MIB = 2**20
IMAGE = "registry.example/team/train:2"

#: What engines and registries say: of Engine 20.10 as it said it here, of others as their sources and issues have it.
SAID: list[tuple[int, str, Kind, StartFault]] = [
    (400, "invalid reference format", "reference", "job"),
    (400, "invalid reference format: repository name must be lowercase", "reference", "job"),
    (0, "invalid checksum digest format", "reference", "job"),
    (404, "manifest for registry.example/team/train:2 not found: manifest unknown: manifest unknown", "not_found", "job"),
    (0, "manifest for registry.example/team/train:2 not found: manifest unknown: manifest unknown", "not_found", "job"),
    (404, "no matching manifest for linux/amd64 in the manifest list entries", "not_found", "job"),
    (404, "repository registry.example/team/train not found: does not exist or no pull access", "not_found", "job"),
    (404, ("pull access denied for team/train, repository does not exist or may require 'docker login': denied: requested "
    "access to the resource is denied"), "denied", "job"),
    (500, "Head \"https://registry.example/v2/team/train/manifests/2\": unauthorized: authentication required", "denied", "job"),
    (500, "Get \"https://registry.example/v2/\": no basic auth credentials", "denied", "job"),
    (500, "error parsing HTTP 403 response body: denied: forbidden", "denied", "job"),
    (500, "toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating",
     "rate_limit", ""),
    (0, "toomanyrequests: too many requests", "rate_limit", ""),
    (500, "received unexpected HTTP status: 500 Internal Server Error", "registry", ""),
    (500, "received unexpected HTTP status: 503 Service Unavailable", "registry", ""),
    (0, "filesystem layer verification failed for digest sha256:12", "registry", ""),
    (500, "Get \"https://registry.example/v2/\": dial tcp: lookup registry.example: no such host", "no_host", "job"),
    (500, "Get \"https://registry.example/v2/\": dial tcp 10.0.0.1:443: connect: connection refused", "network", ""),
    (500, "Get \"https://registry.example/v2/\": net/http: TLS handshake timeout", "network", ""),
    (500, "Get \"https://registry.example/v2/\": x509: certificate signed by unknown authority", "network", ""),
    (500, ("Get \"https://registry.example/v2/\": net/http: request canceled while waiting for connection (Client.Timeout "
    "exceeded while awaiting headers)"), "network", ""),
    (0, "unexpected EOF", "network", ""),
    (0, "read tcp 10.0.0.2:33->10.0.0.1:443: read: connection reset by peer", "network", ""),
    (0, "broke off: the engine's answer broke off", "network", ""),
    (0, "failed to register layer: Error processing tar file(exit status 1): write /big: no space left on device",
     "disk", "node"),
    (500, "write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "disk", "node"),
    (500, "something else", "unknown", ""),
]  # fmt: skip


@pytest.mark.parametrize(("status", "words", "kind", "fault"), SAID)
def test_a_failed_pull_is_classified(status: int, words: str, kind: Kind, fault: StartFault) -> None:
    """The responsible party, and whether this node may retry: never if the job or the disk is at fault."""
    failure = classify(IMAGE, status, words)
    again = kind in ("rate_limit", "registry", "no_host", "network", "unknown")
    assert (kind, fault, again) == failure[:3]
    assert IMAGE in failure.message and words.split(maxsplit=1)[0] in failure.message


def test_waits_double_up_to_a_bound_and_end() -> None:
    """10 s doubling, at most 300 s, five tries in all."""
    assert [backoff_s(failed) for failed in range(1, 7)] == [10, 20, 40, 80, None, None]
    assert Failure("network", "", True, "x").again


def test_progress_counts_the_layers_of_known_size_and_never_falls() -> None:
    """A second layer that becomes known half-way does not lower the percentage; 100 % is not reported before the end."""
    progress = Progress("x:1")
    assert progress.words() == "pulling image x:1"

    def said(layer: str, status: str, current: int = 0, total: int = 0) -> str:
        detail = {"current": current, "total": total} if total else {}
        assert progress.take({"id": layer, "status": status, "progressDetail": detail}) == ""
        return progress.words()

    assert said("a", "Pulling fs layer") == "pulling image x:1"
    assert said("a", "Downloading", 20 * MIB, 40 * MIB) == "pulling image x:1: 50 %, 20 of 40 MiB"
    assert said("b", "Downloading", 0, 60 * MIB) == "pulling image x:1: 50 %, 20 of 100 MiB"
    assert said("a", "Download complete") == "pulling image x:1: 50 %, 40 of 100 MiB"
    assert said("b", "Download complete") == "pulling image x:1: 99 %, 100 of 100 MiB"
    assert progress.take({"error": "short", "errorDetail": {"message": "unexpected EOF"}}) == "unexpected EOF"


class NeverAsked:
    """An engine that must not be reached."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the engine was reached: {name}")


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        *(
            (name, "reference")
            for name in ("/", ".", "//", "../containers", "../images", "../containers/att-victim", "a/../b")
        ),
        *(
            (name, "reference")
            for name in ("a b", "A", "a:", "a@sha256:12", "a\nb", "a?x=y", "a%2fb", "sha256:" + "a" * 200)
        ),
        *(
            (f"{host}/x/y:z", "not_allowed")
            for host in ("127.0.0.1:5000", "localhost", "169.254.169.254", "[::1]:5000")
        ),
    ],
)
async def test_a_name_that_must_not_reach_the_engine_does_not(image: str, kind: Kind) -> None:
    """The engine would take it for another request, or connect, as root, to where no registry is allowed."""
    with pytest.raises(PullFailed) as refused:
        await Images(cast(EngineLink, NeverAsked())).ready(image, lambda _: None)
    failure = refused.value.failure
    assert (failure.kind, failure.fault, failure.again) == (kind, "job", False)


@pytest.mark.parametrize("during", ["the pull", "the creation"])
async def test_any_exception_of_a_start_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    """An unexpected error becomes the end of the run, with its message. Without an end it would hold its GPUs."""
    runtime, watch = (
        DockerRuntime(tmp_path, "n1", incarnation(), simulated=True, socket=str(tmp_path / "none")),
        Watch(),
    )
    runtime._emit = watch.handle

    async def ready(_name: str, _say: object) -> Image:
        if during == "the pull":
            raise TypeError("list indices must be integers")
        return Image("sha256:12", "x@sha256:12")

    async def call_slowly(_ask: object) -> None:
        raise TypeError("list indices must be integers")

    async def call(_ask: object, _within_s: float | None = None) -> None:
        raise docker.errors.NotFound("no such container")

    monkeypatch.setattr(runtime.images, "ready", ready)
    monkeypatch.setattr(runtime.engine, "call_slowly", call_slowly)
    monkeypatch.setattr(runtime.engine, "call", call)
    runtime.start(launch("7", "true", image="x"))
    await watch.until(lambda: key("7") in watch.failures, 10)
    assert watch.failures == {key("7"): "list indices must be integers"}
    runtime.start(launch("7", "true", image="x"))  # it is forgotten, so a cancel finds nothing
    await watch.until(lambda: not runtime._runs, 10)
    await runtime.close()


# ---------------------------------------------------------------------------------------- with an engine


@pytest.fixture
def registry() -> Iterator[Registry]:
    """One registry per test, with images of its own."""
    with Registry() as made:
        yield made


class PullingRuntime:
    """A runtime over the machine's engine, and the images that it removed."""

    def __init__(self, base: Path, registry: Registry) -> None:
        self.base, self.registry, self.incarnation = base, registry, incarnation()
        self.client = docker.from_env().api
        self._open: list[DockerRuntime] = []

    async def runtime(self) -> tuple[DockerRuntime, Watch]:
        runtime, watch = DockerRuntime(self.base, "n1", self.incarnation, simulated=True, socket=SOCKET), Watch()
        runtime.images = Images(runtime.engine, ON_LOOPBACK, stall_s=3.0, patience=0.01)
        await runtime.open(watch.handle)
        self._open.append(runtime)
        return runtime, watch

    def push(self, *, mib: int = 0) -> str:
        """An image that no engine has seen before: a layer of busybox, and one of so many random MiB."""
        busybox = shutil.which("busybox")
        assert busybox is not None, "tests/conftest.py skips the tests marked docker where there is none"
        return self.registry.push(f"t{secrets.token_hex(4)}", root_file_system(busybox), _random_layer(mib))

    async def close(self) -> None:
        last, _ = await self.runtime()
        await last.adopt([])
        for runtime in self._open:
            await runtime.close()
        for image in self.client.images():
            for name in [*(image["RepoDigests"] or []), *(image["RepoTags"] or [])]:
                if name.startswith(self.registry.address):
                    self.client.remove_image(image["Id"], force=True)
                    break


@pytest.fixture
async def world(tmp_path: Path, registry: Registry) -> AsyncIterator[PullingRuntime]:
    """Ends with nothing of its own left in the engine."""
    world = PullingRuntime(tmp_path, registry)
    yield world
    await world.close()


def _random_layer(mib: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("ballast")
        entry.size = mib * MIB + 16
        tar.addfile(entry, io.BytesIO(secrets.token_bytes(entry.size)))
    return buffer.getvalue()


def key(job: str) -> RunKey:
    return RunKey(job, 1, 0)


def notes(runtime: DockerRuntime, job: str) -> list[str]:
    return [line for line in runtime.output(key(job))[1].read_text().splitlines() if line.startswith("fairlead: ")]


@pytest.mark.docker
async def test_a_missing_image_is_pulled_and_reported_by_its_digest(world: PullingRuntime) -> None:
    """Progress is at the head of stderr, before the job's own output, which is complete; the digest is the registry's."""
    image = world.push(mib=4)
    runtime, watch = await world.runtime()
    runtime.start(launch("801", "sh", "-c", "echo out; echo err >&2", image=image))
    assert await watch.exit_of(key("801")) == Exit(code=0)
    assert watch.images == {key("801"): world.registry.digest(image)}
    assert watch.prepared
    said = notes(runtime, "801")
    assert said[0] == f"fairlead: pulling image {image}" and any(" %, " in line for line in said)
    assert said[-1] == f"fairlead: image {image} is here: {world.registry.digest(image)}"
    stdout, stderr = runtime.output(key("801"))
    assert (stdout.read_text(), stderr.read_text().splitlines()[len(said) :]) == ("out\n", ["err"])
    runtime.start(launch("802", "true", image=image))
    assert await watch.exit_of(key("802")) == Exit(code=0)
    assert runtime.output(key("802"))[1].read_text() == ""  # it was there: nothing is said
    assert watch.images[key("802")] == world.registry.digest(image)


@pytest.mark.docker
async def test_an_image_named_by_digest_is_that_one(world: PullingRuntime) -> None:
    """name@sha256:… pulls exactly it."""
    image = world.registry.digest(world.push())
    runtime, watch = await world.runtime()
    runtime.start(launch("806", "true", image=image))
    assert await watch.exit_of(key("806")) == Exit(code=0)
    assert watch.images == {key("806"): image}


@pytest.mark.docker
async def test_runs_of_one_image_share_a_pull(world: PullingRuntime) -> None:
    """Every layer is requested once; each run gets the progress; a stop of one run leaves the pull to the others."""
    image = world.push(mib=2)
    world.registry.stalls = True
    runtime, watch = await world.runtime()
    jobs = ["811", "812", "813"]
    for job in jobs:
        runtime.start(launch(job, "true", image=image))
    await watch.until(lambda: {key(job) for job in jobs} <= set(watch.prepared))
    runtime.terminate(key("812"))
    await watch.until(lambda: bool(watch.failures))
    assert watch.failures == {key("812"): UNWANTED}
    world.registry.stalls = False
    await watch.until(lambda: len(watch.exits) == 2)
    assert len(world.registry.asked) == len(set(world.registry.asked))


@pytest.mark.docker
async def test_a_stop_during_a_pull_works_at_once(world: PullingRuntime) -> None:
    """Nothing is started, the engine stops pulling, and nothing of the run is left."""
    image = world.push(mib=2)
    world.registry.stalls = True
    runtime, watch = await world.runtime()
    runtime.start(launch("821", "true", image=image))
    await until_file(runtime.output(key("821"))[1], b"fairlead: pulling")
    runtime.terminate(key("821"))
    await watch.until(lambda: key("821") in watch.failures)
    assert watch.starts == []
    world.registry.stalls = False
    await asyncio.sleep(1.0)
    with pytest.raises(docker.errors.ImageNotFound):
        world.client.inspect_image(image)


@pytest.mark.docker
async def test_an_agent_that_restarts_during_a_pull_knows_that_nothing_ran(world: PullingRuntime) -> None:
    """The run was certainly never started, so it may be started: its image is pulled, and it runs once."""
    image = world.push(mib=2)
    world.registry.stalls = True
    first, _ = await world.runtime()
    first.start(launch("831", "true", image=image))
    await until_file(first.output(key("831"))[1], b"fairlead: pulling")
    await first.close()
    second, watch = await world.runtime()
    assert (second.directories.path(key("831")) / PULLING).exists()
    assert await second.adopt([key("831")]) == {key("831"): Found("never")}
    world.registry.stalls = False
    second.start(launch("831", "sh", "-c", "echo once >&2", image=image))
    assert await watch.exit_of(key("831")) == Exit(code=0)
    text = second.output(key("831"))[1].read_text()
    assert text.splitlines()[-1] == "once" and text.count("pulling image") == len(notes(second, "831")) - 1


@pytest.mark.docker
@pytest.mark.parametrize(
    ("status", "kind", "fault", "tries"),
    [(401, "denied", "job", 1), (404, "not_found", "job", 1), (429, "rate_limit", "", 5), (500, "registry", "", 5)],
)
async def test_a_registrys_refusal_is_reported(
    world: PullingRuntime, status: int, kind: Kind, fault: str, tries: int
) -> None:
    """The job's fault at once, a registry's own failure after five tries; the reason is also in the output."""
    image = world.push()
    world.registry.status = status
    runtime, watch = await world.runtime()
    runtime.start(launch("841", "true", image=image))
    await watch.until(lambda: key("841") in watch.failures)
    message = watch.failures[key("841")]
    assert message.startswith(f"image {image} {MEANS[kind]}: ")
    assert watch.faults[key("841")] == fault
    again = [line for line in notes(runtime, "841") if "tried again in" in line]
    assert len(again) == tries - 1
    assert notes(runtime, "841")[-1] == f"fairlead: {message}"


@pytest.mark.docker
async def test_a_registry_that_comes_back_is_waited_for(world: PullingRuntime) -> None:
    """It fails twice, then answers: the run starts."""
    image = world.push()
    world.registry.status = 500
    runtime, watch = await world.runtime()
    runtime.start(launch("851", "true", image=image))
    await watch.until(lambda: runtime.output(key("851"))[1].exists() and len(notes(runtime, "851")) >= 3)
    world.registry.status = 0
    assert await watch.exit_of(key("851")) == Exit(code=0)


@pytest.mark.docker
async def test_an_interrupted_blob_is_fetched_again(world: PullingRuntime) -> None:
    """Half of a layer, then nothing: the engine resumes there, and the image is complete."""
    image = world.push(mib=2)
    world.registry.cuts = 1
    runtime, watch = await world.runtime()
    runtime.start(launch("861", "true", image=image))
    assert await watch.exit_of(key("861")) == Exit(code=0)
    assert len(world.registry.asked) == len(set(world.registry.asked)) + 1


@pytest.mark.docker
async def test_a_registry_that_falls_silent_is_not_waited_for_without_end(world: PullingRuntime) -> None:
    """No word for the bound's length is a failure of the network, which is tried again."""
    image = world.push(mib=1)
    world.registry.stalls = True
    runtime, watch = await world.runtime()
    runtime.images = Images(runtime.engine, ON_LOOPBACK, stall_s=0.5, patience=0.001)
    runtime.start(launch("871", "true", image=image))
    await watch.until(lambda: key("871") in watch.failures)
    assert "cannot be reached" in watch.failures[key("871")]
    assert watch.faults[key("871")] == ""


@pytest.mark.docker
async def test_an_invalid_image_name_is_the_jobs_fault(world: PullingRuntime) -> None:
    """No registry is queried."""
    runtime, watch = await world.runtime()
    for job, image in {"881": "UPPER/Case:1", "882": "a b", "883": "x@sha256:12"}.items():
        runtime.start(launch(job, "true", image=image))
    await watch.until(lambda: len(watch.failures) == 3)
    assert set(watch.faults.values()) == {"job"}
    assert world.registry.manifests == 0
