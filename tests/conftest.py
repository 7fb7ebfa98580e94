"""What tests share: real servers, and an honest account of what could not run here.

A test says by a marker what it needs (nats, docker, gpu, slow). What the machine lacks is skipped, and the
end of the run prints one line per skipped group with its reason.
"""

import contextlib
import gc
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest
import structlog

from tests import plain_only, pure, quarantine
from tests.kit import hosts, ldap_server
from tests.kit.nats_server import NatsServer, find_program

SYSTEM = Path(__file__).parent / "system"
#: Torch has wheels for fewer Pythons than we run on, and is larger than all else together: it stands beside.
TORCH_PYTHON = Path(__file__).parents[1] / ".venv-torch/bin/python"
_TORCH_IS_SET_UP = Path(__file__).parents[1] / ".venv-torch/.set-up"

# No example is too slow: machines are busy. A person's run looks at new examples each time; CI's says the same twice.
hypothesis.settings.register_profile("fairlead", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.register_profile("pure", hypothesis.settings.get_profile("fairlead"), max_examples=20)
hypothesis.settings.load_profile("fairlead")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that was run within the test's process may have set its own."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_a_person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands that tests start have an empty folder of settings, instead of the one of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True, scope="module")
def _earlier_tests_are_not_collected_again() -> None:
    """Leave what earlier files left alive out of garbage collections. Services collect when they are idle, and each time would go
    through millions of objects of other tests in the same process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """One server for the whole session, shared: only for tests that use names of their own."""
    with _running() as server:
        yield server


@pytest.fixture(scope="module")
def nats_url() -> Iterator[str]:
    """The address of an empty server, shared by the tests of one file."""
    with _running() as server:
        yield server.url


@pytest.fixture
def fresh_nats() -> Iterator[NatsServer]:
    """An empty server for one test, which may stop, kill, pause and restart it."""
    with _running() as server:
        yield server


@contextlib.contextmanager
def _running() -> Iterator[NatsServer]:
    server = NatsServer()
    try:
        server.start()
        # Services check there that the server fsyncs every message.
        os.environ["FAIRLEAD_NATS_MONITOR"] = server.monitor
        yield server
    finally:
        server.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--pure` and `--quick` select layers; `--update-golden` writes expected files again after an intended change."""
    parser.addoption(
        "--pure", action="store_true", help="only tests that start no process, open no socket and do not wait"
    )
    parser.addoption(
        "--schemathesis", type=int, default=2, metavar="N", help="examples that schemathesis makes for each operation"
    )
    parser.addoption("--quick", action="store_true", help="leave out tests marked slow")
    parser.addoption("--update-golden", action="store_true", help="write tests/schemas/golden again")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples where a person waits for the rules alone."""
    if config.getoption("--pure"):
        hypothesis.settings.load_profile("pure")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of files that hold no pure test, where only those are wanted."""
    if config.getoption("--pure") and collection_path.suffix == ".py" and not pure.is_pure_file(collection_path):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the layer, and spread whole systems among the others: few of them run at once, and none is the last that a worker takes."""
    if config.getoption("--pure"):
        chosen = [item for item in items if pure.is_pure(item) and item.get_closest_marker("slow") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    systems = [path for path in files if path.is_relative_to(SYSTEM)]
    others = [path for path in files if not path.is_relative_to(SYSTEM)]
    beside = len(others) // (len(systems) + 2)
    order: list[Path] = []
    for at, path in enumerate(systems):
        order += [path, *others[at * beside : (at + 1) * beside]]
    order += others[len(systems) * beside :]
    items[:] = [item for path in order for item in files[path]]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the machine cannot run, with a reason that says how to mend it."""
    for marker, missing in NEEDS:
        if item.get_closest_marker(marker) is not None and (reason := missing()):
            pytest.skip(reason)
    if reason := plain_only.reason_to_skip(item.nodeid):
        pytest.skip(reason)
    if item.get_closest_marker("slow") is not None and item.config.getoption("--quick"):
        pytest.skip("slow: left out by --quick")


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_setup")
def guard_setup(item: pytest.Item) -> Generator[None]:
    """Hold the fixtures of a pure test to what it promises."""
    with pure.guarded() if pure.is_pure(item) else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Hold a pure test to what it promises."""
    with pure.guarded() if pure.is_pure(item) else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Excuse failures of tests that are in quarantine."""
    return quarantine.excused((yield))


@cache
def no_nats() -> str:
    """Return the reason why tests with a real nats-server cannot run; "" if they can."""
    try:
        find_program()
    except ImportError as error:
        return f"nats: no nats-server: {error} (make setup installs it)"
    return ""


@cache
def no_docker() -> str:
    """Return the reason why tests with a Docker engine cannot run; "" if they can."""
    try:
        import docker

        docker.from_env(timeout=10).ping()
    except Exception as error:  # noqa: BLE001 -- whatever keeps the engine from answering is the reason
        return f"docker: no Docker engine answers: {type(error).__name__} (start one, or see .ci/docker-engine)"
    if shutil.which("busybox") is None:
        return "docker: no busybox to make an image of (install busybox-static)"
    return ""


@cache
def no_gpu() -> str:
    """Return the reason why tests on a real GPU cannot run; "" if they can."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "gpu: no NVIDIA driver found (make test-gpu on a GPU host)"
    return "" if listed.returncode == 0 and "GPU" in listed.stdout else "gpu: nvidia-smi lists no GPU"


@cache
def no_hosts() -> str:
    """Return the reason why tests that simulate several hosts cannot run; "" if they can."""
    return f"hosts: {reason}" if (reason := hosts.unfit()) else ""


@cache
def no_mpi() -> str:
    """Return the reason why tests with a real mpirun cannot run; "" if they can. If FAIRLEAD_NEED_MPI is set, as on CI,
    that is a failure."""
    missing = [name for name in ("mpirun", "mpicc") if shutil.which(name) is None]
    if missing and os.environ.get("FAIRLEAD_NEED_MPI"):
        raise RuntimeError(f"no {' and no '.join(missing)} on PATH, and FAIRLEAD_NEED_MPI is set")
    return f"mpi: no {missing[0]} (Debian: openmpi-bin, libopenmpi-dev)" if missing else ""


@cache
def no_torch() -> str:
    """Return the reason why tests with torch cannot run; "" if they can."""
    return "" if _TORCH_IS_SET_UP.exists() else "torch: not set up (make torch does it)"


@cache
def no_slapd() -> str:
    """Return the reason why tests with an LDAP server cannot run; "" if they can."""
    return "" if ldap_server.SLAPD else "slapd: no slapd (Debian: slapd)"


NEEDS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("nats", no_nats),
    ("docker", no_docker),
    ("gpu", no_gpu),
    ("hosts", no_hosts),
    ("mpi", no_mpi),
    ("torch", no_torch),
    ("slapd", no_slapd),
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Failures of quarantined tests, and one line per skipped group."""
    quarantine.summary(terminalreporter)
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("skipped, and why")
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count:4d}  {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")
