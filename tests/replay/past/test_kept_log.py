"""`fairlead --log DIR`: a kept log answers the verbs that read, as the cluster of then; nothing else is taken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.main import main
from fairlead_replay.export import LOG_FILE, write_export
from tests.gateway.standing import StandingGateway, paths_at
from tests.replay.whatif.scenes import Scene, queues

pytestmark = pytest.mark.connected


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The logs of both plays of a what-if."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(12):
        scene.submit(n * 3, 4, 200, queue="ab"[n % 2], name=f"job-{n}")
    write_export(tmp_path / "export", scene.play(400)[0])
    (tmp_path / "change.yaml").write_text("queues: {a: {maximum: {nvidia.com/gpu: 4}}}\n")
    words = ["-f", str(tmp_path / "change.yaml"), "--data", str(tmp_path / "export"), "--seeds", "0"]
    assert main(["whatif", *words, "--keep", str(tmp_path / "kept")]) == 0
    return tmp_path / "kept"


type Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run a command line without a gateway."""
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:1")

    def ask(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(list(words))
        out, err = capfd.readouterr()
        return code, out, err

    return ask


def test_a_play_answers_why_its_jobs_wait(kept: Path, ask: Ask) -> None:
    """In the variant by the limit that the change has set, in the control by its absence; at any moment."""
    why = [ask("--log", str(kept / play), "why", "5") for play in ("variant", "control")]
    assert why[0][0] == why[1][0] == 0
    assert "queue a is at 4 of 4 GPUs" in why[0][1]
    assert "queue a is at" not in why[1][1]
    code, out, _ = ask("--log", str(kept / "variant"), "--at", "12", "why", "1")
    assert (code, "as of     sequence 12" in out) == (0, True)


def test_a_play_is_read_as_tables(kept: Path, ask: Ask) -> None:
    """SQL over its events, map and lists, and the check of the same directory."""
    query = "SELECT queue, count(*) AS starts FROM jobs WHERE started_at IS NOT NULL GROUP BY 1 ORDER BY 1"
    tables = {play: ask("--log", str(kept / play), "sql", "-o", "csv", query) for play in ("variant", "control")}
    assert [code for code, _, _ in tables.values()] == [0, 0]
    assert tables["variant"][1].startswith("queue,starts\na,")
    assert tables["variant"][1] != tables["control"][1]
    code, out, _ = ask("--log", str(kept / "variant"), "--at", "20", "nodes", "--map")
    assert (code, "as of sequence 20" in out) == (0, True)
    assert main(["audit", "verify", "--data", str(kept / "variant")]) == 0


def test_what_changes_something_is_refused(kept: Path, ask: Ask) -> None:
    """No service would ever decide about it."""
    code, _, err = ask("--log", str(kept / "variant"), "cancel", "5")
    assert code != 0
    assert "takes only requests that read" in err


def test_a_missing_or_damaged_log_is_an_error(kept: Path, ask: Ask) -> None:
    """With its sequence; nothing is answered from what is stored before."""
    code, _, err = ask("--log", str(kept), "jobs")
    assert (code, "there is no kept log in" in err) == (3, True)
    lines = (kept / "control" / LOG_FILE).read_bytes().splitlines(keepends=True)
    lines[9] = lines[9].replace(b'"at_ns":1', b'"at_ns":2')
    (kept / "control" / LOG_FILE).write_bytes(b"".join(lines))
    code, out, err = ask("--log", str(kept / "control"), "jobs")
    assert (code, out) == (1, "")
    assert "DAMAGED: " in err


async def test_every_route_answers_as_a_gateway_does(kept: Path) -> None:
    """Every route, byte for byte."""
    import httpx

    from fairlead_replay.past.kept_log import StandingCluster
    from fairlead_replay.whatif.sources import stored_in

    messages = list(stored_in(kept / "variant"))
    cluster = StandingCluster(messages)
    try:
        async with StandingGateway(messages) as gateway:
            for path in paths_at(gateway.views):
                if not path.endswith("/why"):  # with an explainer it says more
                    found = await cluster.answer(httpx.Request("GET", f"http://localhost{path}"))
                    assert found.content == await gateway.document(path), path
    finally:
        await cluster.close()
