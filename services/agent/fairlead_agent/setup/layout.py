"""Layout of a node: directories, files and units, with their modes and texts. Pure; start at `units` and `settings_text`.

/etc/fairlead/agent.env       settings of the agent and the guard: the admin's, who may edit it; may hold a token
/etc/fairlead/node.nk         the seed of the node's bus key
/var/lib/fairlead             journals and the files of runs
/etc/systemd/system           fairlead-agent.service, fairlead-guard.service
"""

from collections.abc import Mapping
from typing import NamedTuple

CONFIG, DATA, UNITS = "/etc/fairlead", "/var/lib/fairlead", "/etc/systemd/system"
ENV_FILE, KEY_FILE = f"{CONFIG}/agent.env", f"{CONFIG}/node.nk"
AGENT, GUARD = "fairlead-agent.service", "fairlead-guard.service"
KEY_SETTING = "FAIRLEAD_NATS_NKEY_FILE"


class Directory(NamedTuple):
    """A directory that should be there."""

    path: str
    mode: int
    why: str


class TextFile(NamedTuple):
    """A file that should have this text."""

    path: str
    mode: int
    text: str


DIRECTORIES = (
    Directory(CONFIG, 0o755, "settings"),
    # Runs of other users reach their own directories through it; no other user can list it.
    Directory(DATA, 0o711, "journals and the files of runs"),
)
#: (path, bits that it must not have), which doctor also checks.
SECRETS = ((KEY_FILE, 0o077), (ENV_FILE, 0o077))

_AGENT = """\
# Written by `fairlead agent install`.
[Unit]
Description=Fairlead agent: makes it run on this node
Wants=network-online.target
After=network-online.target docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
EnvironmentFile={env_file}
ExecStart={python} -m fairlead_agent
WorkingDirectory={data}
Restart=always
RestartSec=2
# The agent alone: what it has started runs on while it is stopped, upgraded or started again.
KillMode=process
TimeoutStopSec=15
OOMScoreAdjust=-900
LimitNOFILE=262144
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"""

_GUARD = """\
# Written by `fairlead agent install`.
[Unit]
Description=Fairlead guard: ends this node's work when its agent is dead and nothing replaces it
After=docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
EnvironmentFile={env_file}
ExecStart={python} -m fairlead_agent.guard
WorkingDirectory={data}
Restart=always
RestartSec=2
TimeoutStopSec=10
OOMScoreAdjust=-950

[Install]
WantedBy=multi-user.target
"""


def settings_text(before: str, given: Mapping[str, str]) -> str:
    """The settings file: what there was, with what is given replaced or added at its end. Lines of others stay.

    >>> settings_text("# ours\\nFAIRLEAD_NODE=n1\\n", {"FAIRLEAD_NODE": "n2", "FAIRLEAD_POOL": "a100"})
    '# ours\\nFAIRLEAD_NODE=n2\\nFAIRLEAD_POOL=a100\\n'
    """
    left = dict(given)
    lines: list[str] = []
    for line in before.splitlines():
        name = line.partition("=")[0].strip()
        lines.append(f"{name}={left.pop(name)}" if name in left else line)
    lines += [f"{name}={value}" for name, value in left.items()]
    return "".join(f"{line}\n" for line in lines)


def read_settings(text: str) -> dict[str, str]:
    """The settings of such a file, as systemd reads it: NAME=VALUE, comments (# or ;), values perhaps in quotes."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith(("#", ";")):
            value = value.strip()
            quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
            found[name.strip()] = value[1:-1] if quoted else value
    return found


HEAD = "# Settings of this node's agent and guard: docs/reference/settings.md lists them. After a change: systemctl restart fairlead-agent\n"


def units(python: str) -> tuple[TextFile, ...]:
    """The two units, for this interpreter."""
    words = {"env_file": ENV_FILE, "python": python, "data": DATA}
    return (
        TextFile(f"{UNITS}/{AGENT}", 0o644, _AGENT.format(**words)),
        TextFile(f"{UNITS}/{GUARD}", 0o644, _GUARD.format(**words)),
    )
