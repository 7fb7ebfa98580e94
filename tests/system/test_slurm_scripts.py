"""Twenty batch scripts, each with the features of another site's, submitted as they are to one stack of two simulated nodes."""

import contextlib
import io
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.main import main
from tests.kit.eventually import eventually
from tests.system.pages import TASKS, Terminal

pytestmark = [pytest.mark.nats, pytest.mark.slow]

SCRIPTS = Path(__file__).parents[1] / "data" / "slurm"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-slurm.md"
#: {script: {file: its sorted lines}}; {id} is the job's.
OUTPUT: dict[str, dict[str, list[str]]] = {
    "01-single-gpu": {"single-{id}.out": ["job single on 1 GPU with 4 CPUs in default"]},
    "02-array-limit": {
        "logs/sweep_{id}_03.out": ["task 3 of 4 (0-3): 0.0001"],
        "logs/sweep_{id}_00.out": ["task 0 of 4 (0-3): 0.1"],
        "logs/sweep_{id}_01.err": ["no trouble"],
    },
    "03-array-files": {"files-1.out": ["input alpha"], "files-2.out": ["input beta"]},
    "04-two-node-tasks": {
        "two-node-{id}.out": [
            "nodes 2 tasks 4 as 2(x2)",
            *(f"rank {rank} local {rank % 2} node {rank // 2}" for rank in range(4)),
        ]
    },
    "05-torchrun-rendezvous": {"ddp.out": ["met rank 1", "nodes 2"]},
    "06-steps-in-turn": {"steps.out": ["0: work in step 1", "1: work in step 1", "collected", "prepared"]},
    "07-steps-side-by-side": {"side.out": ["all parts", "part a", "part b", "part c"]},
    "08-modules": {"modules.out": ["threads 1"]},
    "09-conda": {"conda.out": ["python is there"], "conda.err": ["to stderr"]},
    "10-signal-trap": {"signal.out": ["saving", "started"], "saved.ckpt": []},
    "11-submit-directory": {"directory.out": ["script is here", "submitted from here"]},
    "12-restarted": {"restarted.out": ["first start"]},
    "13-exit-code": {"exit.out": []},
    "14-node-local-scratch": {"result-of-scratch.txt": ["10"]},
    "15-openmp-and-gnu-options": {"openmp.out": ["4 threads for vision", "step has 4"]},
    "16-export": {"export.out": ["/data/site for 3 epochs"]},
    "17-gpus-of-tasks": {"gpus.out": [f"task {rank} has 1" for rank in range(4)]},
    "18-mpi": {"mpi.out": ["world 2", "world 2"]},
    "19-het": {"het.out": ["first part"]},
    "20-begin-and-site-options": {"elsewhere/site-ada.out": ["account vision in elsewhere"]},
}
#: What is named as not followed; nothing for the others.
NAMED = {
    "11-submit-directory": ["--no-requeue"],
    "19-het": ["hetjob"],
    "20-begin-and-site-options": ["--qos", "--hint", "--distribution"],
}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Who types in a directory with the scripts, on a stack of two nodes."""
    folder = tmp_path_factory.mktemp("slurm")
    for script in SCRIPTS.glob("*.sh"):
        shutil.copy(script, folder)
    (folder / "elsewhere").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLEAD_DATA", str(folder / "data"))
        patch.setenv("FAIRLEAD_USER", "ada")
        patch.setenv("SITE_DATA", "/data/site")
        patch.delenv("FAIRLEAD_URL", raising=False)
        there = Terminal(folder, patch.setenv, update=False)
        assert "url" in there.run("fairlead up --open --nodes 2 --detach")
        try:
            yield there
        finally:
            there.run("fairlead down --jobs")


def typed(folder: Path, *words: str) -> tuple[str, str]:
    """(stdout, stderr) of a command line."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main(list(words))
    out.seek(0)
    return out.read(), err.getvalue()


def lines(path: Path) -> list[str] | None:
    return sorted(path.read_text().splitlines()) if path.exists() else None


def test_scripts_run_as_they_are(terminal: Terminal) -> None:
    """All at once, then one that depends on two of them; each writes its file, and what is not followed is named."""
    assert sorted(path.stem for path in SCRIPTS.glob("*.sh")) == sorted(OUTPUT)
    folder, ids = terminal.folder, dict[str, str]()
    for name in OUTPUT:
        options = ["--ignore", "hetjob"] if name == "19-het" else []
        out, err = typed(folder, "sbatch", "--parsable", *options, f"{name}.sh")
        assert out.strip().isdecimal(), err
        ids[name] = out.strip()
        notes = [line for line in err.splitlines() if line.startswith("warning")]
        assert len(notes) == len(NAMED.get(name, [])), notes
        assert all(any(word in note for note in notes) for word in NAMED.get(name, [])), notes
    chain = f"afterok:{ids['01-single-gpu']},afternotok:{ids['13-exit-code']}"
    last, _ = typed(
        folder, "sbatch", "--parsable", f"--dependency={chain}", "-o", "chain.out", "--wrap", "echo chained"
    )
    typed(folder, "wait", *ids.values(), last.strip(), "--timeout", "60s")
    for name, files in OUTPUT.items():
        for file, expected in files.items():
            path = folder / file.format(id=ids[name])
            assert lines(path) == expected, (name, file, typed(folder, "logs", ids[name]))
    assert lines(folder / "chain.out") == ["chained"]
    out, _ = typed(folder, "sacct", "-j", ids["13-exit-code"], "-n", "-P", "--format=JobID,State,ExitCode")
    assert out == f"{ids['13-exit-code']}|FAILED|3:0\n"
    out, _ = typed(folder, "sacct", "-j", ids["02-array-limit"], "-X", "-n", "-P", "-o", "JobID,State")
    assert f"{ids['02-array-limit']}_3|COMPLETED\n" in out
    out, _ = typed(folder, "logs", ids["04-two-node-tasks"])
    assert "rank 3 local 1 node 1" in out  # the file is a copy: the output is kept here, too


def test_the_page_is_typed(terminal: Terminal) -> None:
    """Every command line of the page before its tasks is accepted, in its order, by a stack that has jobs."""
    folder = terminal.folder
    (folder / "train.sh").write_text("#!/bin/bash\n#SBATCH -J train\n#SBATCH --time=10\nsleep 60\n")
    job = ""
    text = PAGE.read_text().partition(TASKS)[0]
    commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    assert len(commands) >= 25
    for command in commands:
        words = terminal_words(command.replace("JOB", job or "JOB").replace("HOST", socket.gethostname()))
        out, err = typed(folder, *words[1:])
        assert not err.startswith("error"), (command, err)
        if command.startswith("fairlead sbatch") and "--test-only" not in command:
            job = out.split()[-1]
            eventually(lambda job=job: typed(folder, "show", job)[0], "the job is listed")


def terminal_words(line: str) -> list[str]:
    import shlex

    return shlex.split(line, comments=True)
