"""Make a machine a node, or no node any more; again and again, with the same end. Start at `install`.

Under another root (`--root`) files are made there and nothing is started; with `dry` nothing is made. Each thing that is
done, or would be, is one line.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fairlead_agent.settings import from_environment
from fairlead_agent.setup import layout
from fairlead_agent.setup.layout import Directory, TextFile
from fairlead_bus import nkey

Say = Callable[[str, str], None]
_SYSTEMD = Path("/run/systemd/system")


class Where(NamedTuple):
    """Target of the installation."""

    root: Path = Path("/")
    dry: bool = False

    def at(self, path: str) -> Path:
        """The path under this root."""
        return self.root / path.lstrip("/")

    @property
    def live(self) -> bool:
        """True for this machine itself, with systemd running: units can be started."""
        return self.root == Path("/") and not self.dry and _SYSTEMD.is_dir()


class Installed(NamedTuple):
    """Result of an installation."""

    node: str
    public_key: str
    #: The key was there before.
    known_key: bool


def install(where: Where, given: Mapping[str, str], say: Say, *, python: str = sys.executable) -> Installed:
    """Make the directories, settings (given ones replace existing ones), the key and the units; then start the units.

    Raises BadSetting before anything is made, BadKey for a key file that cannot be used, OSError.
    """
    say = _would(say) if where.dry else say
    env_file = where.at(layout.ENV_FILE)
    before = env_file.read_text() if env_file.exists() else layout.HEAD
    own = {"FAIRLEAD_DATA": layout.DATA, layout.KEY_SETTING: layout.KEY_FILE}
    kept = layout.read_settings(before)
    text = layout.settings_text(before, {name: value for name, value in own.items() if name not in kept} | dict(given))
    settings = from_environment(layout.read_settings(text))
    for directory in layout.DIRECTORIES:
        _directory(where, directory, say)
    _file(where, TextFile(layout.ENV_FILE, 0o600, text), say)
    public, known = _key(where, settings.node, say)
    changed = [_file(where, unit, say) for unit in layout.units(python)]
    _start(where, say, changed=any(changed))
    return Installed(settings.node, public, known)


def _would(say: Say) -> Say:
    """Return a listener's call that says of changes that they would be made."""
    words = {"made": "would make", "changed": "would change"}
    return lambda what, text: say(words.get(what, what), text)


def _directory(where: Where, wanted: Directory, say: Say) -> None:
    path = where.at(wanted.path)
    if path.is_dir() and path.stat().st_mode & 0o7777 == wanted.mode:
        say("kept", f"{path}")
        return
    say("made", f"{path} ({wanted.mode:04o}, {wanted.why})")
    if not where.dry:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(wanted.mode)


def _file(where: Where, wanted: TextFile, say: Say) -> bool:
    """Write the file unless it is up to date. Return True if it was (or, in a dry run, would be) written."""
    path = where.at(wanted.path)
    there = path.exists()
    if there and path.read_text() == wanted.text and path.stat().st_mode & 0o7777 == wanted.mode:
        say("kept", f"{path}")
        return False
    say("changed" if there else "made", f"{path} ({wanted.mode:04o})")
    if not where.dry:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(wanted.text)
        draft.chmod(wanted.mode)
        draft.replace(path)
    return True


def _key(where: Where, node: str, say: Say) -> tuple[str, bool]:
    """The public key, and whether there was one. The seed is made here and never leaves."""
    path = where.at(layout.KEY_FILE)
    if path.exists():
        public = nkey.read_file(path).public
        say("kept", f"{path}, the key {public}")
        return public, True
    pair = nkey.generate()
    say("made", f"{path} (0600, the node's bus key{f' {pair.public}' if not where.dry else ''})")
    if not where.dry:
        nkey.write_file(path, pair, f"node {node}")
    return pair.public, False


def _start(where: Where, say: Say, *, changed: bool) -> None:
    names = [layout.AGENT, layout.GUARD]
    if not where.live:
        say("left", f"to you: systemctl daemon-reload && systemctl enable --now {' '.join(names)}")
        return
    if changed:  # only then: under some engines a reload takes running containers' GPUs away (docs/reference/facts.md)
        _systemctl(say, "daemon-reload")
    _systemctl(say, "enable", "--now", *names)


def _systemctl(say: Say, *words: str) -> None:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise OSError(done.returncode, (done.stderr or done.stdout).strip() or "failed", f"systemctl {' '.join(words)}")
    say("did", f"systemctl {' '.join(words)}")


def uninstall(where: Where, say: Say, *, purge: bool = False) -> None:
    """Stop and remove the units. Settings, key and data stay, unless `purge`. What runs is not touched. Raises OSError."""
    names = [layout.AGENT, layout.GUARD]
    there = [name for name in names if where.at(f"{layout.UNITS}/{name}").exists()]
    if where.live and there:
        _systemctl(say, "disable", "--now", *there)
    for name in there:
        _remove(where, f"{layout.UNITS}/{name}", say)
    if where.live and there:
        _systemctl(say, "daemon-reload")
    for path in (layout.ENV_FILE, layout.KEY_FILE):
        if where.at(path).exists():
            if purge:
                _remove(where, path, say)
            else:
                say("kept", f"{where.at(path)} (--purge removes it)")
    if where.at(layout.DATA).is_dir():
        # Never removed: it keeps a run from being started twice, and it holds the output of runs.
        say("kept", f"{where.at(layout.DATA)} (journals; remove it by hand once the node is gone for good)")


def _remove(where: Where, path: str, say: Say) -> None:
    say("removed", f"{where.at(path)}")
    if not where.dry:
        where.at(path).unlink()
