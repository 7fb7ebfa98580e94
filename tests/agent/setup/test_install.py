"""Installation of a node: made under another root, checked by systemd's own reader, and removed."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead_agent.settings import from_environment
from fairlead_agent.setup import install, layout
from fairlead_agent.setup.install import Where
from fairlead_bus import nkey
from fairlead_bus.environment_settings import BadSetting

GIVEN = {"FAIRLEAD_NATS": "nats://bus:4222", "FAIRLEAD_NODE": "n7", "FAIRLEAD_RUNTIME": "docker"}


class Said(list[tuple[str, str]]):
    """Log lines, by their first word."""

    def __call__(self, what: str, text: str) -> None:
        self.append((what, text))

    def words(self) -> list[str]:
        return [what for what, _ in self]


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """{path: (mode, content)} of everything under a root."""
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_a_node_has_its_directories_settings_key_and_units(tmp_path: Path) -> None:
    """With modes that keep others out; the agent's own reader takes the settings."""
    said = Said()
    installed = install.install(Where(tmp_path), GIVEN, said)
    made = tree(tmp_path)
    assert {path: oct(mode) for path, (mode, _) in made.items() if path.startswith(("etc/fairlead", "var/lib/"))} == {
        "etc/fairlead": "0o755",
        "etc/fairlead/agent.env": "0o600",
        "etc/fairlead/node.nk": "0o600",
        "var/lib/fairlead": "0o711",
    }
    assert installed == install.Installed("n7", nkey.read_file(tmp_path / "etc/fairlead/node.nk").public, False)
    settings = from_environment(layout.read_settings((tmp_path / "etc/fairlead/agent.env").read_text()))
    assert (settings.node, settings.runtime, str(settings.data)) == ("n7", "docker", "/var/lib/fairlead")
    assert said.words() == ["made"] * 6 + ["left"]


def test_again_it_changes_nothing_and_says_so(tmp_path: Path) -> None:
    """Not even a time of change: what runs under these units is not disturbed."""
    install.install(Where(tmp_path), GIVEN, Said())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    said = Said()
    installed = install.install(Where(tmp_path), {}, said)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    assert (said.words(), installed.known_key) == (["kept"] * 6 + ["left"], True)


def test_settings_of_the_admin_stay(tmp_path: Path) -> None:
    """Comments, order and other settings; only the given ones are replaced."""
    install.install(Where(tmp_path), GIVEN, Said())
    path = tmp_path / "etc/fairlead/agent.env"
    path.write_text("# ours\n" + path.read_text() + 'FAIRLEAD_NODE_LABELS="fairlead/rack=r1"\n')
    install.install(Where(tmp_path), {"FAIRLEAD_NODE": "n8", "FAIRLEAD_POOL": "a100"}, Said())
    lines = path.read_text().splitlines()
    assert lines[0] == "# ours"
    assert lines[-2:] == ['FAIRLEAD_NODE_LABELS="fairlead/rack=r1"', "FAIRLEAD_POOL=a100"]
    assert [line for line in lines if line.startswith("FAIRLEAD_NODE=")] == ["FAIRLEAD_NODE=n8"]
    settings = from_environment(layout.read_settings(path.read_text()))
    assert settings.admin.labels == {"fairlead/rack": "r1"}


def test_a_loose_file_is_made_tight_again(tmp_path: Path) -> None:
    """The settings may hold a token."""
    install.install(Where(tmp_path), GIVEN, Said())
    (tmp_path / "etc/fairlead/agent.env").chmod(0o644)
    (tmp_path / "var/lib/fairlead").chmod(0o777)
    said = Said()
    install.install(Where(tmp_path), {}, said)
    assert {what for what, text in said if "agent.env" in text or "var/lib" in text} == {"changed", "made"}
    assert tree(tmp_path)["etc/fairlead/agent.env"][0] == 0o600


def test_a_dry_run_makes_nothing_and_says_all(tmp_path: Path) -> None:
    """The same lines as the real one, except that they say "would"."""
    dry, real = Said(), Said()
    install.install(Where(tmp_path, dry=True), GIVEN, dry)
    assert tree(tmp_path) == {}
    install.install(Where(tmp_path), GIVEN, real)
    assert [what.removeprefix("would make") or "made" for what in dry.words()] == real.words()
    assert "made" not in dry.words()


@pytest.mark.parametrize(
    "given", [{"FAIRLEAD_NODE": "N 7"}, {"FAIRLEAD_RUNTIME": "podman"}, {"FAIRLEAD_BEAT_S": "soon"}]
)
def test_a_setting_that_the_agent_would_refuse_is_refused_before_anything_is_made(
    tmp_path: Path, given: dict[str, str]
) -> None:
    """An agent that cannot start is noticed here, not in the journal of systemd."""
    with pytest.raises(BadSetting, match=next(iter(given))):
        install.install(Where(tmp_path), GIVEN | given, Said())
    assert tree(tmp_path) == {}


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """It may have been read already: make another, or take the risk and tighten it."""
    install.install(Where(tmp_path), GIVEN, Said())
    (tmp_path / "etc/fairlead/node.nk").chmod(0o644)
    with pytest.raises(nkey.BadKey, match="expected 0600"):
        install.install(Where(tmp_path), {}, Said())


def test_uninstalling_leaves_what_could_be_missed(tmp_path: Path) -> None:
    """Units go; settings and key on request; the journals never."""
    install.install(Where(tmp_path), GIVEN, Said())
    (tmp_path / "var/lib/fairlead/agent-n7").mkdir()
    install.uninstall(Where(tmp_path), Said())
    assert list((tmp_path / "etc/systemd/system").iterdir()) == []
    assert (tmp_path / "etc/fairlead/node.nk").exists()
    said = Said()
    install.uninstall(Where(tmp_path), said, purge=True)
    assert said.words() == ["removed", "removed", "kept"]
    assert (tmp_path / "var/lib/fairlead/agent-n7").is_dir()
    assert not (tmp_path / "etc/fairlead/node.nk").exists()


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Read by `systemd-analyze verify`: no unknown setting, no program that is not there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd: no systemd-analyze to read the units with (install systemd)")
    install.install(Where(tmp_path), GIVEN, Said())
    units = [str(path) for path in sorted((tmp_path / "etc/systemd/system").glob("*.service"))]
    assert len(units) == 2
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "fairlead" in line]) == (0, [])


def test_the_units_leave_runs_alone_and_come_back() -> None:
    """The agent's stop must end the agent alone; a supervisor that gives up would leave a node without one."""
    agent, guard = (unit.text for unit in layout.units(sys.executable))
    assert f"ExecStart={sys.executable} -m fairlead_agent\n" in agent
    assert f"ExecStart={sys.executable} -m fairlead_agent.guard\n" in guard
    assert "KillMode=process" in agent
    for text in (agent, guard):
        assert "Restart=always" in text
        assert "StartLimitIntervalSec=0" in text
        assert f"EnvironmentFile={layout.ENV_FILE}" in text
    assert os.access(sys.executable, os.X_OK)
