"""`fairlead policy test` and `fairlead audit export --load`: exit codes, outputs, and what is wrong with a file, in words."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fairlead.main import main
from fairlead_replay.export import write_export
from fairlead_replay.policy_test import plays
from fairlead_replay.whatif.fidelity import Fidelity, compare
from fairlead_replay.whatif.load_file import read_load
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.replays import Outcome
from tests.replay.policy_test.worlds import two_queues_log

TEST = """
log: {{{log}}}
policy: {policy}
exact: true
expect:
  - {{metric: wait_p95, queue: a, worse_by_at_most: 10%}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an export, a load file and a policy test of the recorded policy."""
    write_export(tmp_path / "export", two_queues_log())
    assert (
        main(["audit", "export", "--load", str(tmp_path / "day.load.jsonl.gz"), "--data", str(tmp_path / "export")])
        == 0
    )
    write(tmp_path)
    return tmp_path


def write(folder: Path, log: str = "load: day.load.jsonl.gz", policy: str = "recorded", more: str = "") -> None:
    """Write a policy test."""
    (folder / "policy.yaml").write_text(TEST.format(log=log, policy=policy) + more)


def run(folder: Path, *words: str) -> int:
    """Run the test."""
    return main(["policy", "test", str(folder / "policy.yaml"), *words])


HURTS = "{change: {queues: {a: {maximum: {nvidia.com/gpu: 2}}}}}"


def test_met_is_0_and_broken_is_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The broken one names the queue and by how much."""
    assert run(folder) == 0
    assert capsys.readouterr().out.endswith("all 1 met\n")
    write(folder, policy=HURTS)
    assert run(folder) == 1
    assert "BROKEN  wait_p95 of queue a, worse by at most 10%: 1.00 s to " in capsys.readouterr().out


def test_an_export_is_played_as_its_load_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same document, digests included."""
    assert run(folder, "-o", "json") == 0
    some = json.loads(capsys.readouterr().out)
    write(folder, log="export: export")
    assert run(folder, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == some
    assert some["status"] == "met"


def test_what_cannot_be_judged_is_7(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A control that is too far from its record."""

    def doubtful(recording: LogRecording, control: Outcome) -> Fidelity:
        return compare(recording, control)._replace(grade="C", because=("queue a: other waits",))

    monkeypatch.setattr(plays, "compare", doubtful)
    assert run(folder) == 7
    found = capsys.readouterr().out
    assert "UNCLEAR wait_p95 of queue a, worse by at most 10%: the control's grade is C, expected B or better" in found


def test_an_empty_window_is_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing would be tested: by its bounds, or for lack of jobs."""
    for bounds, told in (
        ("from: 2023-11-14T22:15:00Z, to: 2023-11-14T22:15:00Z", "log.to: expected a time after from"),
        ("from: 2023-11-14T22:18:55Z", "log: expected jobs in the window, found none"),
    ):
        write(folder, log=f"export: export, {bounds}")
        assert run(folder) == 2
        assert told in capsys.readouterr().err


def test_junit_goes_to_a_file_as_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For CI, next to the text for people."""
    write(folder, policy=HURTS)
    assert run(folder, "--junit", str(folder / "report.xml")) == 1
    assert "BROKEN" in capsys.readouterr().out
    suite = ElementTree.parse(folder / "report.xml").getroot()[0]
    assert suite.get("failures") == "1"
    assert run(folder, "-o", "junit") == 1
    assert capsys.readouterr().out == (folder / "report.xml").read_text()


def test_goldens_are_written_when_asked_and_compared_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy that decides otherwise breaks them, and nothing writes them silently."""
    write(folder, more="goldens: day.golden.json\n")
    assert run(folder) == 2
    assert "goldens" in capsys.readouterr().err
    assert run(folder, "--update") == 0
    before = (folder / "day.golden.json").read_bytes()
    assert run(folder) == 0
    assert "ok      goldens: the same play, commit by commit" in capsys.readouterr().out
    write(folder, policy=HURTS, more="goldens: day.golden.json\n")
    assert run(folder) == 1
    assert "BROKEN  goldens: " in capsys.readouterr().out
    assert (folder / "day.golden.json").read_bytes() == before


def test_goldens_of_another_log_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The window is another one."""
    write(folder, more="goldens: day.golden.json\n")
    assert run(folder, "--update") == 0
    write(folder, log='export: export, to: "2023-11-14T22:16:00Z"', more="goldens: day.golden.json\n")
    assert run(folder) == 2
    assert "goldens: they are of another log" in capsys.readouterr().err


def test_a_queue_file_is_the_policy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `queues apply` takes it; one that lacks a queue of the log is refused."""
    (folder / "queues.yaml").write_text("queues: {a: {maximum: {nvidia.com/gpu: 2}}, b: {}}\n")
    write(folder, policy="{queues: queues.yaml}")
    assert run(folder) == 1
    assert "not given: 1 commands that the change replaces" in capsys.readouterr().out
    (folder / "queues.yaml").write_text("queues: {a: {}}\n")
    assert run(folder) == 2
    assert "found none named b" in capsys.readouterr().err


ORDER = """
from fairlead_queue.sequencers.custom import QueueOrder

class Reverse(QueueOrder):
    def key(self, queue):
        return (-ord(queue.path[-1]),)

class Raises(QueueOrder):
    def key(self, queue):
        raise ZeroDivisionError("no share of nothing")
"""


def test_a_sequencer_file_is_the_policy(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class is played; one that raises is named with the moment; one that is not there is refused."""
    monkeypatch.setattr("fairlead_queue.sequencers.registry._offered", {})  # other tests know none of these
    (folder / "mine.py").write_text(ORDER)
    write(folder, policy="{sequencer: 'mine.py:Reverse'}")
    assert run(folder) in (0, 1)
    capsys.readouterr()
    write(folder, policy="{sequencer: 'mine.py:Raises'}")
    assert run(folder) == 2
    found = capsys.readouterr().err
    assert "cannot be played: the queue could not decide at 2023-11-14T22:13:" in found
    assert "ZeroDivisionError: no share of nothing" in found
    for words, told in (
        ("mine.py:Nobody", 'expected FILE.py:Class with a class derived from QueueOrder, found "mine.py:Nobody"'),
        ("mine.py", "expected FILE.py:Class"),
        ("gone.py:Reverse", "there is no"),
        ("fifoo", "expected one of drf, fairshare, fifo"),
    ):
        write(folder, policy=f"{{sequencer: '{words}'}}")
        assert run(folder) == 2
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("log", "code", "told"),
    [
        ("load: gone.load.jsonl.gz", 3, "log.load: there is no"),
        ("export: gone", 3, "log.export: there is no"),
        ("load: policy.yaml", 2, "log.load: expected a path of one"),
        ("export: day.load.jsonl.gz", 2, "log.export: expected a path of one"),
        ("load: forged.load.jsonl.gz", 2, "log.load: "),
        ("load: huge.load.jsonl.gz", 2, "at most 256 MiB, found 2,048 MiB"),
        (f"load: day.load.jsonl.gz, sha256: {'0' * 64}", 2, "log.sha256: expected 0000000000000000…, found "),
        ("export: export, from: 2020-01-01", 2, "log.from: expected a time from the log's first commit on"),
        ("export: damaged", 3, "DAMAGED"),
    ],
)
def test_a_wrong_log_is_named(folder: Path, capsys: pytest.CaptureFixture[str], log: str, code: int, told: str) -> None:
    """3 where there is none that can be read, 2 where the file is to blame."""
    data = (folder / "day.load.jsonl.gz").read_bytes()
    (folder / "forged.load.jsonl.gz").write_bytes(data[: len(data) // 2])
    with (folder / "huge.load.jsonl.gz").open("wb") as file:
        file.truncate(2 * 1024**3)
    (folder / "damaged").mkdir()
    for each in (folder / "export").iterdir():
        changed = (
            each.read_bytes().replace(b'"queue":"a"', b'"queue":"b"', 1)
            if each.name == "log.jsonl"
            else each.read_bytes()
        )
        (folder / "damaged" / each.name).write_bytes(changed)
    write(folder, log=log)
    assert run(folder) == code
    assert told in capsys.readouterr().err


def test_a_refused_change_is_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy in the file is wrong, in the service's own words."""
    write(folder, policy="{change: {queues: {a: {guaranteed: {nvidia.com/gpu: 8}, maximum: {nvidia.com/gpu: 2}}}}}")
    assert run(folder) == 2
    assert "expected at least what is guaranteed" in capsys.readouterr().err
    write(folder, policy="{change: {queues: {c: {weight: 2}}}}")
    assert run(folder) == 2
    assert "queues.c: expected a queue of the window (a, b)" in capsys.readouterr().err


def test_an_anonymous_load_says_what_it_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of names is the owner's, and is written only when asked for."""
    names, file = folder / "names.csv", folder / "anonymous.load.jsonl.gz"
    words = ["audit", "export", "--load", str(file), "--data", str(folder / "export")]
    assert main([*words, "--anonymous", "--names", str(names)]) == 0
    assert "names replaced" in capsys.readouterr().out
    assert "u1,user-3" in names.read_text()
    assert read_load(file)[0].anonymous
    assert main(words) == 2
    assert "a load file is never written over" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--load", "day.json"], "expected a file name that ends in .load.jsonl.gz"),
        (["--load", "--names", "n.csv", "x.load.jsonl.gz"], "--names: expected it with --anonymous"),
        (["x", "--anonymous"], "--anonymous: expected it with --load"),
        (["x", "--from", "2h"], "--from: expected it with --load"),
        (
            ["--load", "x.load.jsonl.gz", "--from", "2020-01-01"],
            "--from: expected a time from the log's first commit on",
        ),
    ],
)
def test_wrong_options_of_an_export_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """Exit code 2, and nothing is written."""
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert main(["audit", "export", *words, "--data", "export"]) == 2
    assert told in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_report_that_cannot_be_written_is_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, and the goldens likewise."""
    assert run(folder, "--junit", str(folder / "gone" / "report.xml")) == 2
    assert "--junit: " in capsys.readouterr().err
    write(folder, more="goldens: gone/day.golden.json\n")
    assert run(folder, "--update") == 2
    assert "goldens: " in capsys.readouterr().err
