"""Profiles of applications that people open in a browser: how each is started, how it listens, and when it is ready. Pure.

A profile is a row of `PROFILES`. A job file names one (`app: jupyterlab`), or has words of its own for a program that is in no row
(`app: {ready: /health}`, which is the profile `http`). The agent sets FAIRLEAD_APP_PORT and FAIRLEAD_APP_TOKEN for the program. Each attempt's
app has a host name of its own, `label_of`.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

#: Variables of the program: the port to listen on, on 127.0.0.1; a secret of this attempt, which the app proxy adds to requests; and
#: the name of the profile, by which the agent finds the app of a run that it did not start itself.
PORT_VARIABLE, TOKEN_VARIABLE, APP_VARIABLE = "FAIRLEAD_APP_PORT", "FAIRLEAD_APP_TOKEN", "FAIRLEAD_APP"
#: The path of a unix socket, where the app listens on one in place of a port; and the path that shows whether it is ready.
SOCKET_VARIABLE, READY_VARIABLE = "FAIRLEAD_APP_SOCKET", "FAIRLEAD_APP_READY"
#: Looks by which a run is ended whose app answers no more, as `AliveCheck.text`.
ALIVE_VARIABLE = "FAIRLEAD_APP_ALIVE"
ALIVE_EVERY_S_MIN, ALIVE_EVERY_S_MAX, ALIVE_FAILURES_MAX = 1, 3600, 100
BACKGROUND_PATHS_MAX = 32
PATH_CHARS_MAX = 200
#: Of a unix socket's path (unix(7)), less what leads to it from outside of a container.
SOCKET_CHARS_MAX = 80


class AppProfile(NamedTuple):
    """One kind of application."""

    name: str
    summary: str
    #: The command of a job that has none of its own; () where the job must have one.
    command: tuple[str, ...] = ()
    #: Path whose answer shows that the app serves, whatever the status but 5xx; "": it is ready once it takes a connection.
    ready: str = "/"
    #: Value of `Authorization` that the proxy adds, with {token} for the secret; "": none.
    authorization: str = ""
    #: Beginnings of paths that a page asks for by itself, whether or not somebody is there.
    background: tuple[str, ...] = ()
    #: True: requests that change nothing (GET, HEAD, OPTIONS) are the page's own, since its people act over sockets and by changes.
    reads_are_background: bool = False
    #: False for what speaks no HTTP, and is reached by other means than a browser.
    is_http: bool = True


_ROOT = '$([ "$(id -u)" = 0 ] && echo --allow-root)'
_JUPYTER = (
    f'export JUPYTER_TOKEN="${TOKEN_VARIABLE}"; exec jupyter lab --no-browser {_ROOT} --ip=127.0.0.1 --port="${PORT_VARIABLE}"'
    " --ServerApp.port_retries=0 --ServerApp.base_url=/ --ServerApp.allow_remote_access=True --ServerApp.quit_button=False"
)
_CODE = (
    f'exec code-server --bind-addr "127.0.0.1:${PORT_VARIABLE}" --auth none --disable-telemetry --disable-update-check'
)
_TENSORBOARD = (
    f'exec tensorboard --host 127.0.0.1 --port "${PORT_VARIABLE}" --load_fast=false --logdir "${{LOGDIR:-.}}"'
)
_TERMINAL = f'exec ttyd --interface 127.0.0.1 --port "${PORT_VARIABLE}" --writable "${{SHELL:-/bin/sh}}"'
_SSHD = f'exec /usr/sbin/sshd -D -e -o ListenAddress=127.0.0.1 -p "${PORT_VARIABLE}"'

PROFILES: Mapping[str, AppProfile] = {
    each.name: each
    for each in (
        AppProfile(
            "jupyterlab",
            "notebooks; needs jupyterlab in the image or on the node",
            ("/bin/sh", "-c", _JUPYTER),
            ready="/api",
            authorization="token {token}",
            # Polls of an open tab; its kernel's own frames come over a socket.
            background=("/api/kernels", "/api/sessions", "/api/terminals", "/api/status", "/api/me", "/lab/api/"),
            reads_are_background=True,
        ),
        AppProfile(
            "code-server",
            "VS Code in the browser; needs code-server",
            ("/bin/sh", "-c", _CODE),
            ready="/healthz",
            background=("/healthz", "/_static", "/update"),
            reads_are_background=True,
        ),
        AppProfile(
            "tensorboard",
            "plots of a run's logs (env LOGDIR, or the working directory); needs tensorboard",
            ("/bin/sh", "-c", _TENSORBOARD),
            ready="/data/environment",
            background=("/data/environment", "/data/plugins_listing", "/data/runs"),
        ),
        AppProfile(
            "terminal",
            "a shell in the browser; needs ttyd",
            ("/bin/sh", "-c", _TERMINAL),
            reads_are_background=True,
        ),
        AppProfile(
            "ssh",
            "OpenSSH's server, reached by fairlead port-forward; needs sshd with host keys",
            ("/bin/sh", "-c", _SSHD),
            ready="",
            is_http=False,
        ),
        AppProfile("http", "any program that speaks HTTP; the job's own command starts it"),
    )
}
#: Profile of an app with words of its own.
OWN = "http"


class AliveCheck(NamedTuple):
    """Looks at an app that has served: at a path ("": a connection is enough), so often, and so many without an answer are its end."""

    path: str
    every_s: int
    failures: int

    @property
    def text(self) -> str:
        """The check as the agent finds it in the environment of a run."""
        return f"{self.every_s} {self.failures} {self.path}"


def parse_alive(text: str) -> AliveCheck | None:
    """Return the check of a text, None for a text of none, whoever wrote it."""
    every, _, rest = text.partition(" ")
    failures, _, path = rest.partition(" ")
    if not (every.isdecimal() and failures.isdecimal() and (not path or is_path(path))):
        return None
    found = AliveCheck(path, int(every[:9]), int(failures[:9]))
    good = ALIVE_EVERY_S_MIN <= found.every_s <= ALIVE_EVERY_S_MAX and 1 <= found.failures <= ALIVE_FAILURES_MAX
    return found if good else None


class App(NamedTuple):
    """Application of one job: a profile, with what its job file says."""

    profile: AppProfile
    #: 0: the agent chooses a free one.
    port: int = 0
    #: Path of a unix socket in the run; "": it listens on a port.
    socket: str = ""
    ready: str = "/"
    background: tuple[str, ...] = ()
    alive: AliveCheck | None = None


def with_command(profile: str, command: list[str]) -> list[str]:
    """Return the command of a job with an app: its own, else its profile's; the empty one where there is none."""
    return command or list(PROFILES[profile].command if profile in PROFILES else ())


def is_path(text: str) -> bool:
    """Return whether a text is a path of a URL, in the form in which requests have it."""
    return text.startswith("/") and len(text) <= PATH_CHARS_MAX and all("!" <= each <= "~" for each in text)


#: Of the part of a label that is made of no name: forty bits.
_SALT_CHARS = 8
_LABEL = re.compile(
    rf"({'|'.join(sorted(PROFILES))})-([1-9][0-9]{{0,14}})(?:-([0-9]{{1,9}}))?-([1-9][0-9]{{0,8}})-([a-z2-7]{{{_SALT_CHARS}}})\Z"
)


class AppLabel(NamedTuple):
    """Parts of the host name of an app."""

    profile: str
    job: str
    attempt: int
    salt: str


def label_of(profile: str, job: str, attempt: int, seed: str) -> str:
    """Return the first label of the host name of one attempt's app. `seed`: what no other attempt of any cluster has, so that a name never
    comes again. Nothing in it is made by people: what they name could be put together to another's name.
    """
    found = hashlib.sha256(f"{profile}\0{job}\0{attempt}\0{seed}".encode()).digest()
    salt = base64.b32encode(found).decode().lower()[:_SALT_CHARS]
    return f"{profile}-{job.replace('_', '-')}-{attempt}-{salt}"


def parse_label(label: str) -> AppLabel | None:
    """Return the parts of a label, None for what is none. Two numbers are a job and an attempt, three an array, its element, an attempt."""
    found = _LABEL.match(label)
    if found is None:
        return None
    profile, job, index, attempt, salt = found.groups()
    return AppLabel(profile, f"{job}_{index}" if index else job, int(attempt), salt)
