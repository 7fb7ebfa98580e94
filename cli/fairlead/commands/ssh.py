"""`ssh`: OpenSSH into a running job, over a tunnel, with a key and a certificate of its own for each connection."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.commands.options import connect, pick
from fairlead.errors import Conflict, InputRefused
from fairlead_schemas.http.tunnels import NewTunnel

KEY, HOSTS, TUNNEL = "key", "known_hosts", "tunnel.json"
#: The name under which the run's host key is known; no name of a machine.
HOST = "run"


def ssh(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id or name of a job that runs, or `last`.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTION… COMMAND…]", help="Options of ssh and a command; none: a shell.", show_default=False
        ),
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=0, help="Of a job of several nodes: the rank.")] = 0,
    sftp: Annotated[bool, typer.Option("--sftp", help="Copy files: `sftp` instead of `ssh`.")] = False,
) -> None:
    """Connect to a running job by OpenSSH: a shell, a command, files, forwarded ports.

    fairlead ssh last

    fairlead ssh train -- -L 6006:localhost:6006 -N

    fairlead ssh train --sftp

    Key and certificate are made for this one connection; nothing listens on the node, and ~/.ssh is not used.
    """
    program = shutil.which("sftp" if sftp else "ssh")
    if program is None:
        raise InputRefused("no OpenSSH client is installed; `fairlead exec` needs none")
    with connect() as client, tempfile.TemporaryDirectory(prefix="fairlead-ssh-") as made:
        (job_id,) = pick(client, [job], names=True)
        found = client.job(job_id)
        if found.state != "running":
            raise Conflict(
                f"job {job_id} is {found.state}; SSH leads only into a job that runs", hint=f"fairlead why {job_id}"
            )
        directory = Path(made)
        tunnel = client.open_ssh(job_id, make_key(directory), rank=rank)
        write_credentials(directory, tunnel)
        argv = [program, *options(directory), *([f"{tunnel.user}@{HOST}"] if sftp else ["-l", tunnel.user])]
        if not sftp:
            argv += target_with(words or [])
        raise typer.Exit(subprocess.run(argv, check=False).returncode)


def make_key(directory: Path) -> str:
    """Write a new private key; return its public key as OpenSSH writes it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    with os.fdopen(os.open(directory / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def write_credentials(directory: Path, tunnel: NewTunnel) -> None:
    """Write what ssh and its ProxyCommand read, in a directory of this user alone."""
    (directory / f"{KEY}-cert.pub").write_text(tunnel.certificate + "\n")
    (directory / HOSTS).write_text(f"{HOST} {tunnel.host_key}\n")
    (directory / TUNNEL).write_bytes(msgspec.json.encode(tunnel))


def options(directory: Path) -> list[str]:
    """Return the options of ssh: this key, this host key, this way, and nothing of the user's own configuration."""
    proxy = shlex.join([sys.executable, "-m", "fairlead.ssh_proxy", str(directory / TUNNEL)]).replace("%", "%%")
    settings = {
        "ProxyCommand": proxy,
        "IdentityFile": directory / KEY,
        "CertificateFile": directory / f"{KEY}-cert.pub",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": directory / HOSTS,
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": HOST,
        "CheckHostIP": "no",
        "PreferredAuthentications": "publickey",
        "ForwardAgent": "no",
        "ServerAliveInterval": 15,
    }
    given = [f"{name}={value}" for name, value in settings.items()]
    return ["-F", "none", *(part for each in given for part in ("-o", each))]


def target_with(words: list[str]) -> list[str]:
    """Return the words of ssh behind its own options: the user's options, the host, the command. A word that begins with - is an
    option; those that take a value have it in the next word, as in ssh.
    """
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        takes_value = words[at][-1] in "BbcDEeFIiJLlmOoPpQRSWw" and len(words[at]) == 2
        at += 2 if takes_value else 1
    command = words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]
    return [*words[:at], HOST, *(["--", *command] if command else [])]
