"""Documents of the HTTP API about connections into runs."""

import msgspec


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
