"""`credentials` and `agent` as they are typed: each says what it did, and a mistake has its cure."""

import stat
from pathlib import Path

import msgspec
import pytest

from fairlead_bus import bus_users, nkey
from fairlead_bus.permissions import SERVICES
from tests.cli.conftest import Run


def names(directory: Path) -> set[tuple[str, str]]:
    return {(user.kind, user.name) for user in bus_users.load(directory)}


def test_init_makes_a_key_for_each_service_once(run: Run, tmp_path: Path) -> None:
    """Seeds for their owners alone; a second time nothing changes."""
    assert run("credentials", "init", "--dir", str(tmp_path)).code == 0
    assert names(tmp_path) == {("service", name) for name in SERVICES}
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {stat.S_IMODE((tmp_path / f"{name}.nk").stat().st_mode) for name in SERVICES} == {0o600}
    ran = run("credentials", "init", "--dir", str(tmp_path))
    assert (ran.code, ran.err.count("kept")) == (0, len(SERVICES))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_node_is_admitted_by_its_own_key(run: Run, tmp_path: Path) -> None:
    """The output of `agent install` is the command for the bus; the seed never leaves the node."""
    root, bus = tmp_path / "node", tmp_path / "bus"
    ran = run(
        "agent", "install", "--root", str(root), "--node", "n7", "--nats", "nats://b:4222", "--set", "FAIRLEAD_BEAT_S=1"
    )
    line = next(line for line in ran.err.splitlines() if line.startswith("next"))
    words = line[line.index("fairlead credentials") : line.index(";")].split()[1:]
    assert run(*words, "--dir", str(bus)).code == 0
    [user] = bus_users.load(bus)
    assert (user.kind, user.name) == ("node", "n7")
    assert user.keys == (nkey.read_file(root / "etc/fairlead/node.nk").public,)
    assert "FAIRLEAD_BEAT_S=1" in (root / "etc/fairlead/agent.env").read_text()


def test_a_key_is_rotated_and_a_node_is_revoked(run: Run, tmp_path: Path) -> None:
    """add, add, retire, revoke; a third key is refused."""
    directory = ("--dir", str(tmp_path))
    for number in (1, 2):
        assert run("credentials", "add", "n7", "--out", str(tmp_path / f"{number}.nk"), *directory).code == 0
    assert run("credentials", "add", "n7", "--out", str(tmp_path / "3.nk"), *directory).code == 2
    assert not (tmp_path / "3.nk").exists()
    shown = msgspec.json.decode(run("credentials", "list", "-o", "json", *directory).out)
    assert [len(user["keys"]) for user in shown] == [2]
    assert run("credentials", "retire", "n7", *directory).code == 0
    assert bus_users.load(tmp_path)[0].keys == (nkey.read_file(tmp_path / "2.nk").public,)
    assert run("credentials", "revoke", "n7", *directory).code == 0
    assert names(tmp_path) == set()
    assert run("credentials", "revoke", "n7", *directory).code == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "n7"), "expected either --public KEY or --out FILE"),
        (("add", "n7", "--public", "UABC"), "a user's public key, 56 characters that begin with U"),
        (("add", "N.7", "--out", "x.nk"), "expected a node's id"),
        (("add", "root", "--service", "--out", "x.nk"), "expected a service (streams, queue"),
    ],
)
def test_a_mistake_is_refused_and_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    """The exit code is 2, and no key file or list is written."""
    monkeypatch.chdir(tmp_path)
    ran = run("credentials", *words, "--dir", str(tmp_path))
    assert (ran.code, told in ran.err) == (2, True), ran.err
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []


def test_a_server_that_cannot_be_reloaded_is_named(run: Run, tmp_path: Path) -> None:
    """The list has changed but the server has not reloaded it, and that is an error."""
    ran = run("credentials", "init", "--dir", str(tmp_path), "--pid-file", str(tmp_path / "gone.pid"))
    assert (ran.code, "the server was not signalled" in ran.err) == (1, True)


@pytest.mark.parametrize("setting", ["POOL=a", "FAIRLEAD_POOL", "FAIRLEAD_POOL=a\nFAIRLEAD_NODE=b"])
def test_a_setting_that_is_none_is_refused(run: Run, tmp_path: Path, setting: str) -> None:
    """A line break would be a second setting."""
    ran = run("agent", "install", "--root", str(tmp_path), "--node", "n7", "--set", setting)
    assert (ran.code, "FAIRLEAD_NAME=VALUE" in ran.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_the_list_is_written_with_the_permissions_of_this_version(run: Run, tmp_path: Path) -> None:
    """After an upgrade; no key is made, and users stay."""
    assert (
        run("credentials", "add", "queue", "--service", "--dir", str(tmp_path), "--out", str(tmp_path / "q.nk")).code
        == 0
    )
    written = (tmp_path / "accounts.conf").read_text()
    (tmp_path / "accounts.conf").write_text("# of an older version")
    assert run("credentials", "init", "--refresh", "--dir", str(tmp_path)).code == 0
    assert (tmp_path / "accounts.conf").read_text() == written
    assert sorted(path.name for path in tmp_path.glob("*.nk")) == ["q.nk"]
