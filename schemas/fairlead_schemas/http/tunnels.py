"""Documents of the HTTP API about connections into runs."""

import msgspec


class NewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A way into the application of a run. A browser opens `path`, which has a code that is good once and for `valid_seconds`, at `origin`; or,
    where that is "", at http://<label>.localhost:PORT, whose connections are carried to `address`.
    """

    label: str
    origin: str
    address: str
    path: str
    valid_seconds: float
    #: False while the application does not serve yet; its page then says so, and waits.
    ready: bool
    sequence: int


class NewTunnel(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that both ends may now come to: `code` is good once, at `address`, for `valid_seconds`."""

    tunnel: str
    address: str
    code: str
    valid_seconds: float
    sequence: int
    #: Of SSH alone: the host's public key, the client's certificate of five minutes (both as OpenSSH writes them), and the user name.
    host_key: str = ""
    certificate: str = ""
    user: str = ""
