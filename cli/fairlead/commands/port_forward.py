"""`port-forward`: ports of this machine that lead to ports inside a job."""

import threading
from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

from fairlead.commands.options import connect, pick
from fairlead.errors import Conflict, FairleadError, InputRefused
from fairlead.render import terminal
from fairlead.tunnel_link import Forwarder, connect_tunnel
from fairlead_schemas.http.tunnels import NewTunnel

PORT_MAX = 65535
#: Asks the gateway for a tunnel to a port inside the job.
type TunnelTo = Callable[[int], NewTunnel]


class PortPair(NamedTuple):
    """Port of this machine (0: any free one), and the port inside the job that it leads to."""

    local: int
    inside: int


def port_forward(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id or name of a job that runs, or `last`.")],
    ports: Annotated[list[str], typer.Argument(metavar="[LOCAL:]PORT…", help="Ports inside the job.")],
    rank: Annotated[int, typer.Option("--rank", min=0, help="Of a job of several nodes: the rank.")] = 0,
    address: Annotated[str, typer.Option("--address", help="Address of this machine to listen on.")] = "127.0.0.1",
) -> None:
    """Forward ports of this machine to ports inside a running job, until Ctrl-C.

    fairlead port-forward last 6006

    fairlead port-forward train 8080:8888 --rank 1

    The job listens on 127.0.0.1 of its node or container; nothing of it is open on the node.
    """
    pairs = [parse_pair(text) for text in ports]
    with connect() as client:
        (job_id,) = pick(client, [job], names=True)
        turn = threading.Lock()

        def tunnel_to(port: int) -> NewTunnel:
            with turn:
                return client.open_tunnel(job_id, port, rank=rank)

        found = client.job(job_id)
        if found.state != "running":
            raise Conflict(f"job {job_id} is {found.state}; only a job that runs has ports")
        for pair in pairs:
            _try(tunnel_to, pair.inside)
        forwarders = [_listen(address, pair, tunnel_to) for pair in pairs]
        try:
            _run(forwarders)
        except KeyboardInterrupt:
            terminal.note("")
        finally:
            for each in forwarders:
                each.close()


def parse_pair(text: str) -> PortPair:
    """Read PORT or LOCAL:PORT. Raises InputRefused."""
    local, _, inside = text.rpartition(":")
    words = (local or inside, inside)
    if not all(word.isdecimal() and int(word) <= PORT_MAX for word in words) or not int(inside):
        raise InputRefused(f'expected PORT or LOCAL:PORT with numbers up to {PORT_MAX}, found "{text}"')
    return PortPair(*map(int, words))


def _try(tunnel_to: TunnelTo, port: int) -> None:
    """Open a tunnel once, so that what cannot work is said now. A program may open its port later."""
    try:
        connect_tunnel(tunnel_to(port)).close()
    except Conflict as error:
        terminal.note(f"{error}; connections are refused until it does")


def _listen(address: str, pair: PortPair, tunnel_to: TunnelTo) -> Forwarder:
    def failed(error: FairleadError) -> None:
        terminal.note(f"connection refused: {error}")

    try:
        forwarder = Forwarder(address, pair.local, lambda: connect_tunnel(tunnel_to(pair.inside)), failed)
    except OSError as error:
        hint = f"0:{pair.inside} takes any free port"
        raise InputRefused(f"{address}:{pair.local} cannot be listened on: {error.strerror}", hint=hint) from error
    terminal.note(f"forwarding {address}:{forwarder.port} -> port {pair.inside} of the job")
    return forwarder


def _run(forwarders: list[Forwarder]) -> None:
    threads = [threading.Thread(target=each.run, daemon=True) for each in forwarders]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
