"""Tunnels: a connection from a client over the app proxy to a port or a command inside a run, as long as the right to it lasts.

The gateway asks the proxy to expect both ends, and the node to dial out to the proxy with a ticket that is good once. The client
comes with a code that is good once. Neither can be used for anything else, and the proxy sees only their digests. The proxy
asks the gateways every few seconds which tunnels may stay open.
"""

import hashlib

import msgspec

#: Both ends must have come by then.
MEET_S = 30.0
#: Between two questions of the proxy about its open tunnels. Without an answer for so long none opens, and all are ended.
ASK_AGAIN_S = 2.0
BLIND_S = 60.0
#: Tunnels in one question.
TUNNELS_MAX = 500
#: Names of the upgrade, one for each end.
CLIENT_END, NODE_END = "fairlead-client", "fairlead-node"
PATH = "/.fairlead/tunnel"


class Tunnel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who may use a tunnel, and to what it leads."""

    id: str
    job: str
    #: Opaque id of the person, and "token:<id>" or "session:<id>"; both "" without sign-on.
    principal: str = ""
    via: str = ""


class ExpectTunnel(msgspec.Struct, frozen=True, kw_only=True):
    """Question of a gateway to the proxy: expect both ends. `client` and `node`: SHA-256 digests (hex) of code and ticket."""

    tunnel: Tunnel
    client: str
    node: str


class TunnelExpected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Addresses (https://host:port or http://…) at which the proxy expects the client and the node; or the reason in words why it
    does not.
    """

    address: str = ""
    node_address: str = ""
    error: str = ""


class OpenTunnel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Question of a gateway to a node: connect a port of a run, its application, or a terminal in it, with the proxy at an address."""

    job: str
    attempt: int
    rank: int
    #: 0 with anything else.
    port: int
    address: str
    ticket: str
    #: True: to where the application of the run listens.
    app: bool = False
    #: True: to a command inside the run (wire/terminal.py). An older node refuses port 0.
    terminal: bool = False
    #: Public key of a client that comes by SSH, as OpenSSH writes it.
    ssh_key: str = ""


class TunnelOpened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of a node: "" where it is connected, else why not, in words. `token`: the secret of the run's application, for the proxy."""

    error: str = ""
    token: str = ""
    #: Of SSH: the host's public key and the client's certificate, as OpenSSH writes them.
    host_key: str = ""
    certificate: str = ""


class AskTunnels(msgspec.Struct, frozen=True, kw_only=True):
    """Question of the proxy to a gateway: which of these may stay open?"""

    tunnels: list[Tunnel]


class TunnelsEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """{id: why it must end} of those that may not. `behind`: the gateway cannot know, since it does not see the log's end."""

    ended: dict[str, str] = {}
    behind: bool = False


def digest(secret: str) -> str:
    """Return the digest under which a secret is expected."""
    return hashlib.sha256(secret.encode()).hexdigest()
