"""The shell scripts that start processes inside a run, under every shell that an image may have for /bin/sh."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_agent.launch.mpi_daemons import fill

SHELLS = [["dash"], ["bash"], ["busybox", "sh"]]
#: A bound of the test, not a promise.
LONG_S = 60.0


@pytest.fixture(params=SHELLS, ids=lambda words: words[0])
def shell(request: pytest.FixtureRequest) -> list[str]:
    """One kind of /bin/sh."""
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"{request.param[0]}: not installed here, so the scripts are not tried under it")
    return request.param


class Ran:
    """A script in a session of its own, as the spawner starts it; what it leaves behind ends with it."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def until(self, line: str) -> None:
        assert self.process.stdout is not None
        while (found := self.process.stdout.readline().rstrip("\n")) != line:
            assert found, "it ended before it said so"

    def end(self) -> tuple[int, list[str], list[str]]:
        """(exit code, lines of output, of errors), sorted."""
        code = self.process.wait(LONG_S)
        self.kill()
        out, err = self.process.communicate()
        return code, sorted(out.splitlines()), sorted(err.splitlines())

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """The launch directory of a run."""
    path = tmp_path / "box"
    fill(path, hosts=("10.0.0.1", "10.0.0.2"), hostfile="10.0.0.1 slots=2\n10.0.0.2 slots=2\n")
    return path


@pytest.fixture
def started(shell: list[str], box: Path) -> Iterator[list[Ran]]:
    """Scripts that were started; killed when the test is over."""
    runs: list[Ran] = []
    yield runs
    for run in runs:
        run.kill()
        run.process.communicate()


def processes(
    started: list[Ran],
    shell: list[str],
    box: Path,
    program: str,
    *,
    first: int = 0,
    count: int = 2,
    grace: str = "5",
    on_failure: str = "stop",
) -> Ran:
    words = [str(first), str(count), grace, on_failure, "sh", "-c", program]
    started.append(Ran([*shell, str(box / "processes.sh"), *words]))
    return started[-1]


def test_each_process_has_its_rank_and_its_lines_say_it(started: list[Ran], shell: list[str], box: Path) -> None:
    """Of output and errors, a last line without its end included."""
    run = processes(started, shell, box, "echo $RANK $LOCAL_RANK; echo oops >&2; printf end", first=4)
    assert run.end() == (
        0,
        ["[rank 4] 4 0", "[rank 4] end", "[rank 5] 5 1", "[rank 5] end"],
        ["[rank 4] oops", "[rank 5] oops"],
    )


LONG = 'trap "echo asked; exit 0" TERM; echo up; while :; do sleep 0.05; done'


def test_the_first_that_fails_ends_the_others(started: list[Ran], shell: list[str], box: Path) -> None:
    """They are asked (TERM); its exit code is the whole's, and the message says which it was."""
    up = box.parent / "up"
    waits = f"while ! [ -e {up}.0 -a -e {up}.2 ]; do sleep 0.05; done"
    long = LONG.replace("echo up", f"touch {up}.$RANK")
    run = processes(started, shell, box, f"if [ $RANK = 1 ]; then {waits}; exit 7; fi; {long}", count=3)
    code, out, err = run.end()
    assert code == 7
    assert [line for line in out if "asked" in line] == ["[rank 0] asked", "[rank 2] asked"]
    assert "fairlead: rank 1 was the first here to fail, with exit code 7" in err


def test_a_process_that_ignores_term_ends_with_the_grace(started: list[Ran], shell: list[str], box: Path) -> None:
    """The others do not wait indefinitely for it: rank 1 was killed, the rest ignore TERM."""
    deaf = "trap '' TERM; while :; do sleep 0.05; done"
    run = processes(started, shell, box, f"if [ $RANK = 1 ]; then kill -9 $$; fi; {deaf}", grace="1")
    code, _, err = run.end()
    assert code == 137
    assert "fairlead: rank 1 was the first here to fail, with exit code 137" in err


def test_others_go_on_where_the_job_says_so(started: list[Ran], shell: list[str], box: Path) -> None:
    """onFailure: continue. The exit code is still that of the first that failed."""
    run = processes(started, shell, box, "[ $RANK = 0 ] && exit 3; sleep 0.5; echo whole", on_failure="continue")
    code, out, _ = run.end()
    assert (code, out) == (3, ["[rank 1] whole"])


def test_a_stop_reaches_all_and_is_waited_for(started: list[Ran], shell: list[str], box: Path) -> None:
    """TERM to the group: what the programs say last is kept, and their own codes count."""
    run = processes(started, shell, box, LONG, count=1)
    run.until("[rank 0] up")
    run.signal(signal.SIGTERM)
    code, out, _ = run.end()
    assert (code, out) == (0, ["[rank 0] asked"])


def test_a_notice_ends_no_process(started: list[Ran], shell: list[str], box: Path) -> None:
    """USR1 is handled by the programs: the script continues."""
    run = processes(
        started, shell, box, 'trap "echo noticed; exit 0" USR1; echo up; while :; do sleep 0.05; done', count=1
    )
    run.until("[rank 0] up")
    run.signal(signal.SIGUSR1)
    assert run.end()[:2] == (0, ["[rank 0] noticed"])


def test_a_left_child_does_not_delay_the_end(started: list[Ran], shell: list[str], box: Path) -> None:
    """A child that keeps the output open is not waited for longer than two seconds."""
    run = processes(started, shell, box, "sleep 3600 & echo done", count=1)
    assert run.end()[:2] == (0, ["[rank 0] done"])


def test_a_waiting_rank_starts_what_it_is_sent_and_says_how_it_ended(
    started: list[Ran], shell: list[str], box: Path
) -> None:
    """Then waits for more, until TERM: that ends it well."""
    run = Ran([*shell, str(box / "wait.sh")])
    started.append(run)
    answers = os.fdopen(os.open(box / "up", os.O_RDWR), "rb", buffering=0)
    for number in (77, 78):
        (box / f"run.{number}").write_text(f"echo daemon {number}; exit 9")
        with (box / "down").open("w") as down:
            down.write(f"{number}\n")
        assert answers.read(100) == f"ended {number} 9\n".encode()
    answers.close()
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == (0, ["daemon 77", "daemon 78"], [])


def test_mpiruns_command_goes_out_whole_and_its_end_comes_back(started: list[Ran], shell: list[str], box: Path) -> None:
    """Longer than a pipe writes at once, with quotes and spaces; ssh's options are passed over."""
    up = os.fdopen(os.open(box / "up", os.O_RDWR), "rb", buffering=0)
    wake = os.open(box / "wake.10.0.0.2", os.O_RDWR)
    command = 'orted -mca "a  b" ' + "x" * 5000
    run = Ran([*shell, str(box / "daemon.sh"), "-l", "me", "-x", "10.0.0.2", *command.split(" ")])
    started.append(run)
    heard = b""
    while b"\nrun " not in heard:
        heard += up.read(65536)
    *pieces, asked = heard.decode().splitlines()
    number = asked.split()[1]
    assert asked == f"run {number} 10.0.0.2"
    assert "".join(line.removeprefix(f"piece {number} ") for line in pieces) == command
    (box / f"answer.{number}").write_text("3\n")
    os.write(wake, f"{number}\n".encode())
    assert run.end() == (3, [], [])


def test_a_host_that_is_not_of_the_job_is_named(started: list[Ran], shell: list[str], box: Path) -> None:
    """As ssh would: exit code 255, and a sentence."""
    run = Ran([*shell, str(box / "daemon.sh"), "elsewhere", "orted"])
    started.append(run)
    code, _, err = run.end()
    assert (code, err) == (
        255,
        [f'fairlead: "elsewhere" is no other node of this job; its nodes are in {box}/hostfile'],
    )
