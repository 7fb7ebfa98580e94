"""Start time of a command: users wait for its imports each time they type one."""

import subprocess
import sys

import pytest

#: What only some verbs need, and what it costs the others is a third of their start.
HEAVY = {"asyncio", "structlog", "nats", "numpy", "duckdb", "docker", "pynvml", "fastapi", "cryptography"}


#: Processes of a cluster, each with what it does not need before somebody needs it.
PROCESSES = {
    "fairlead_queue.__main__": {"rich", "numpy"},
    "fairlead_placer.__main__": {"rich"},
    "fairlead_gateway.__main__": {"rich", "numpy", "cryptography"},
    "fairlead_telemetry.__main__": {"rich"},
    "fairlead_agent.__main__": {"rich", "numpy", "docker"},
    "fairlead_agent.hollow.__main__": {"rich", "numpy"},
    "fairlead_gateway.notify.__main__": {
        "rich",
        "numpy",
        "fastapi",
        "httpx",
        "fairlead_gateway.views",
        "prometheus_client",
    },
    "fairlead_replay.explainer.__main__": {"rich", "numpy", "fairlead_queue", "fairlead_placer"},
}


@pytest.mark.parametrize(("module", "unneeded"), PROCESSES.items(), ids=PROCESSES)
def test_processes_do_without_what_they_seldom_need(module: str, unneeded: set[str]) -> None:
    """Each of them runs all the time, so their memory at rest is a machine's, and each start takes CPU from jobs."""
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "structlog" in found, "the test looks at the wrong process"
    assert found & unneeded == set()


@pytest.mark.parametrize("module", ["fairlead.main", "fairlead_agent.guard.__main__"])
def test_the_command_and_the_guard_start_without_what_they_seldom_need(module: str) -> None:
    """Import these where they are needed, in the function."""
    said = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout
    assert HEAVY & set(said.split()) == set()


#: Additional modules that the list of verbs needs none of, and that each take about as long as Python's own start or longer.
FOR_REQUESTS = {"httpx", "h11", "yaml", "rich", "msgspec", "fairlead.client", "fairlead.commands.jobs"}
#: Modules that a request for a list of jobs does not need.
FOR_OTHER_VERBS = {
    "yaml",
    "rich",
    "click",
    "pygments",
    "pydantic",
    "httpx",
    "http.client",
    "ssl",
    "tomllib",
    "asyncio",
    "httpx_sse",
    "fairlead.commands.submit",
    "fairlead.commands.submission",
}


def imported_by(*words: str) -> set[str]:
    """Return the modules that a command line has imported at its end."""
    program = f"import sys; from fairlead.main import main; main({list(words)!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_the_list_of_verbs_imports_no_verb() -> None:
    """Users read it while they look for a word, and a shell's completion of verbs imports the same."""
    found = imported_by("--help")
    assert found & (HEAVY | FOR_REQUESTS) == set()
    assert [name for name in found if name.startswith(("fairlead_agent", "fairlead_bus", "fairlead_replay"))] == []


def test_a_list_of_jobs_imports_what_it_needs() -> None:
    """`fairlead jobs` is typed most; files, drawings and other verbs are not its business."""
    found = imported_by("jobs", "--help")
    assert {"h11", "fairlead.commands.jobs"} <= found, "the test looks at the wrong process"
    assert found & (HEAVY | FOR_OTHER_VERBS) == set()


#: Readers of files, which the job of a command line needs none of.
FOR_FILES = {
    "yaml",
    "fairlead.jobfile.sbatch",
    "fairlead.jobfile.yaml_text",
    "fairlead.jobfile.kubernetes_job",
    "tomllib",
    "asyncio",
}


def test_a_command_is_submitted_without_the_readers_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML and the files of other systems are imported when there is a file."""
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:9")  # nothing listens there: the dry run checks the job itself
    found = imported_by("submit", "--dry-run", "--", "true")
    assert "fairlead.jobfile.reader" in found, "the test looks at the wrong process"
    assert found & (HEAVY | FOR_FILES) == set()


def test_the_client_is_part_of_the_package() -> None:
    """`from fairlead import Client` works though the package imports it late; other names are errors."""
    import fairlead
    from fairlead.client import Client

    assert fairlead.Client is Client
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = fairlead.Clint
