"""Settings of notifications (docs/reference/settings.md). The gateway reads the allow-lists, the notifier all of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

from fairlead_bus.environment_settings import BadSetting, number, seconds
from fairlead_gateway.notify.allowed_hosts import AllowedHosts, read_networks

HOSTS, NETWORKS, SMTP = "FAIRLEAD_NOTIFY_HOSTS", "FAIRLEAD_NOTIFY_NETWORKS", "FAIRLEAD_SMTP"
#: {scheme of the mail server's address: its usual port}
_SMTP_PORTS = {"smtp": 587, "smtps": 465, "smtp+plain": 25}


class MailServer(NamedTuple):
    """Server that takes mail. smtp: TLS by STARTTLS; smtps: TLS from the start; smtp+plain: none."""

    scheme: str
    host: str
    port: int
    sender: str
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        """Name the server without its password, since logs show reprs."""
        return f"MailServer({self.host}:{self.port})"


class NotifySettings(NamedTuple):
    """Settings of the notifier."""

    allowed: AllowedHosts = AllowedHosts()
    #: None: no mail is sent.
    mail: MailServer | None = None
    #: True where everybody may read everything, since sign-on is off.
    is_open: bool = False
    #: Pause after a failed attempt, doubled up to the second one.
    retry_first_s: float = 1.0
    retry_most_s: float = 300.0
    #: A destination that fails for longer is paused.
    pause_after_s: float = 7 * 86400.0
    #: Between two mails of one rule: what happens meanwhile is in the next one.
    mail_every_s: float = 60.0
    #: One attempt, with the look-up of the name and the answer.
    attempt_s: float = 10.0
    #: Newest notices in memory, for all destinations; one that is further behind reads the log.
    ring_max: int = 4096
    #: Between two looks for places of idle destinations that are to be stored.
    checkpoint_s: float = 300.0

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Read FAIRLEAD_NOTIFY_*, FAIRLEAD_SMTP* and FAIRLEAD_SIGN_ON. Raises BadSetting."""
        return cls(
            allowed=allowed_hosts(env),
            mail=_mail_server(env),
            # Where it is not set, the rights count: this process does not know what the gateway was given.
            is_open=env.get("FAIRLEAD_SIGN_ON") == "off",
            retry_most_s=seconds(env, "FAIRLEAD_NOTIFY_RETRY_S", 300.0),
            pause_after_s=number(env, "FAIRLEAD_NOTIFY_DAYS", 7.0, unit="days", below=3651) * 86400.0,
            mail_every_s=seconds(env, "FAIRLEAD_NOTIFY_MAIL_S", 60.0),
        )


def allowed_hosts(env: Mapping[str, str]) -> AllowedHosts:
    """Read FAIRLEAD_NOTIFY_HOSTS and FAIRLEAD_NOTIFY_NETWORKS. Raises BadSetting."""
    hosts = _words(env, HOSTS)
    for word in hosts:
        name = word.removeprefix("*.")
        if not name or any(char in name for char in "*/@ ") or name != name.lower():
            raise BadSetting(f'{HOSTS}: expected names such as "ci.example.org" or "*.example.org", found "{word}"')
    try:
        return AllowedHosts(hosts, read_networks(_words(env, NETWORKS)))
    except ValueError as error:
        raise BadSetting(f'{NETWORKS}: expected networks such as "10.1.0.0/16": {error}') from None


def _words(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in env.get(name, "").split(",") if word.strip())


def _mail_server(env: Mapping[str, str]) -> MailServer | None:
    """Read FAIRLEAD_SMTP, FAIRLEAD_SMTP_FROM and FAIRLEAD_SMTP_PASSWORD_FILE. Raises BadSetting."""
    if not (text := env.get(SMTP)):
        return None
    expected = f'{SMTP}: expected an address such as "smtp://user@mail.example.org:587"'
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadSetting(expected) from None
    if parts.scheme not in _SMTP_PORTS or not parts.hostname or parts.path not in ("", "/"):
        raise BadSetting(f"{expected}, with one of the schemes {', '.join(_SMTP_PORTS)}")
    if parts.password is not None:
        raise BadSetting(f"{SMTP}: the password belongs into a file, named by FAIRLEAD_SMTP_PASSWORD_FILE")
    sender = env.get("FAIRLEAD_SMTP_FROM", "")
    if not is_mail_address(sender):
        raise BadSetting(
            f'FAIRLEAD_SMTP_FROM: expected the sender\'s address, such as "fairlead@example.org", found "{sender}"'
        )
    user = unquote(parts.username or "")
    return MailServer(
        parts.scheme, parts.hostname, port or _SMTP_PORTS[parts.scheme], sender, user, _password(env) if user else ""
    )


def _password(env: Mapping[str, str]) -> str:
    path = env.get("FAIRLEAD_SMTP_PASSWORD_FILE", "")
    try:
        return Path(path).read_text().strip() if path else ""
    except OSError as error:
        raise BadSetting(f"FAIRLEAD_SMTP_PASSWORD_FILE: {error}") from error


def is_mail_address(text: str) -> bool:
    """Return True for one plain mail address, which can be a header as it is."""
    name, at, domain = text.rpartition("@")
    return (
        bool(at and name and domain) and text.isascii() and text.isprintable() and " " not in text and len(text) <= 254
    )
