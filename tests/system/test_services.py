"""Services on a real stack: the page as it is typed, and a program that streams from two replicas while they are replaced, die and are drained."""

import http.client
import json
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.eventually import eventually
from tests.system import model_server
from tests.system.pages import Terminal, Varies, play, started

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "services.md"
VARIES: Varies = (
    (r"fla_\w+", "fla_KEY"),
    (r"key [0-9a-f]{10} of", "key ID of"),
    (r"[\d.]+ KiB", "SIZE"),
    (r"(?m)^as of .*\n", ""),
)


class StreamingClient:
    """Program that reads one stream after the other, as clients of OpenAI's API do, and keeps what went wrong."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self.errors: list[str] = []
        #: (version, job) of each whole stream.
        self.streams: list[tuple[str, str]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "StreamingClient":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self.streams.append(self.stream())
            except (OSError, http.client.HTTPException, AssertionError, ValueError) as error:
                self.errors.append(repr(error))

    def stream(self, path: str = "/v1/chat/completions") -> tuple[str, str]:
        """Read one stream to its end; return its version and the job that answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            body = json.dumps({"model": "m", "messages": [], "stream": True})
            connection.request("POST", path, body, {"Authorization": f"Bearer {self._key}"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            parts = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
        finally:
            connection.close()
        assert parts.pop() == b"[DONE]", "the stream was cut"
        found = [json.loads(part) for part in parts]
        words = [each["choices"][0]["delta"]["content"] for each in found]
        version = words[0].partition(".")[0]
        assert words == [f"{version}.{number} " for number in range(model_server.PARTS)]
        return version, found[0]["job"]


def service(terminal: Terminal) -> dict[str, object]:
    """The service as it is now."""
    return json.loads(terminal.run("fairlead service show chat -o json"))


def jobs(terminal: Terminal) -> dict[str, str]:
    """{job: node} of the replicas that take requests."""
    found: list[dict[str, str]] = service(terminal)["replicas"]  # type: ignore[assignment]
    return {each["job"]: each["node"] for each in found if each["state"] == "serving"}


def test_programs_stream_from_a_service_while_its_replicas_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Every command on the page prints what the page shows. Then no stream sees an error: while all replicas are replaced by another
    revision, while a dead one is, and while a node is drained. A revoked key is refused.
    """
    (tmp_path / "server").mkdir()
    shutil.copy(model_server.__file__, tmp_path / "server" / "server.py")
    update = bool(request.config.getoption("--update-golden"))
    with started(PAGE, tmp_path, monkeypatch, update=update, user="ann") as terminal:
        terminal.varies = VARIES
        play(terminal, PAGE)

        def gone() -> bool:
            return "no services" in terminal.run("fairlead service list")

        eventually(gone, "the service and its replicas have ended")
        file = tmp_path / "chat.yaml"
        terminal.run("fairlead service apply chat.yaml --wait")
        key = re.findall(r"fla_\w+", terminal.run("fairlead service keys chat --new test"))[0]
        port = int(str(service(terminal)["address"]).rpartition(":")[2])
        with StreamingClient(port, key) as one, StreamingClient(port, key) as other:

            def answered(what: str, since: int, is_good: Callable[[tuple[str, str]], bool]) -> None:
                eventually(lambda: any(map(is_good, one.streams[since:])), what)

            answered("the first revision answers", 0, lambda found: found[0] == "1")
            file.write_text(file.read_text().replace("server.py]", 'server.py, "2"]'))
            terminal.run("fairlead service apply chat.yaml --wait")
            answered("the second revision answers", 0, lambda found: found[0] == "2")
            eventually(lambda: one.streams[-1][0] == other.streams[-1][0] == "2", "the first does not any more")
            before = jobs(terminal)
            assert len(before) == 2

            node = next(iter(before.values()))
            terminal.run(f"fairlead drain {node}")
            eventually(lambda: len(now := jobs(terminal)) == 2 and node not in now.values(), "others serve elsewhere")
            terminal.run(f"fairlead uncordon {node}")
        assert one.errors == other.errors == []

        _, dead = one.stream("/v1/die")
        eventually(
            lambda: dead not in jobs(terminal) and len(jobs(terminal)) == 2, "another takes the dead one's place"
        )
        shown = terminal.run(f"fairlead show {dead}")
        assert "its application has not answered 3 times in a row" in shown, shown

        (found,) = json.loads(terminal.run("fairlead service keys chat -o json"))["items"]
        terminal.run(f"fairlead service keys chat --revoke {found['key']}")

        def refused() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/chat/completions", "{}", {"Authorization": f"Bearer {key}"})
            status = connection.getresponse().status
            connection.close()
            return status == 401

        # A request that has come before may be cut in place of an answer.
        eventually(refused, "the key is none any more", not_yet=(OSError, http.client.HTTPException))
