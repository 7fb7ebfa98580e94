"""Tunnels that are expected: secrets count once, for one end, and for a while."""

import pytest

from fairlead_appproxy.tunnel_table import TUNNELS_MAX, TUNNELS_OF_ONE_MAX, Full, NotExpected, TunnelTable
from fairlead_schemas.wire.tunnels import MEET_S, ExpectTunnel, Tunnel, digest


def question(name: str, principal: str = "ann") -> ExpectTunnel:
    """Return the question for a tunnel whose secrets are its name with c- and n-."""
    tunnel = Tunnel(id=name, job="7", principal=principal)
    return ExpectTunnel(tunnel=tunnel, client=digest(f"c-{name}"), node=digest(f"n-{name}"))


def test_both_ends_open_a_tunnel() -> None:
    """In either order; then neither secret counts any more."""
    table = TunnelTable()
    for name, first_is_client in (("a", True), ("b", False)):
        table.expect(question(name), 0.0)
        for is_client in (first_is_client, not first_is_client):
            assert name not in table.open
            assert table.arrive(f"{'c' if is_client else 'n'}-{name}", 1.0, is_client=is_client).id == name
        assert table.open[name].job == "7"
    for secret, is_client in (("c-a", True), ("n-a", False)):
        with pytest.raises(NotExpected):
            table.arrive(secret, 1.0, is_client=is_client)
    assert len(table) == 2
    table.end("a")
    table.end("a")
    assert len(table) == 1


@pytest.mark.parametrize(
    ("secret", "now", "is_client"),
    [("c-a", MEET_S, True), ("c-a", 0.0, False), ("n-a", 0.0, True), ("c-b", 0.0, True), ("", 0.0, True)],
)
def test_a_secret_is_refused(secret: str, now: float, is_client: bool) -> None:
    """Too late, for the other end, or unknown; and it stays good for its own end."""
    table = TunnelTable()
    table.expect(question("a"), 0.0)
    with pytest.raises(NotExpected):
        table.arrive(secret, now, is_client=is_client)
    assert table.arrive("c-a", MEET_S - 0.1, is_client=True).id == "a"


def test_a_tunnel_without_ends_is_overdue() -> None:
    """Ended, its secrets count no more."""
    table = TunnelTable()
    table.expect(question("a"), 0.0)
    table.arrive("n-a", 1.0, is_client=False)
    assert table.overdue(MEET_S - 0.1) == [] and table.overdue(MEET_S) == ["a"]
    table.end("a")
    assert not len(table)
    with pytest.raises(NotExpected):
        table.arrive("c-a", 1.0, is_client=True)


def test_one_person_does_not_take_all_tunnels() -> None:
    """And all persons together do not take more than there may be."""
    table = TunnelTable()
    for number in range(TUNNELS_OF_ONE_MAX):
        table.expect(question(f"ann-{number}"), 0.0)
    with pytest.raises(Full, match="you have"):
        table.expect(question("ann-more"), 0.0)
    for number in range(TUNNELS_MAX - TUNNELS_OF_ONE_MAX):
        table.expect(question(f"b-{number}", f"bob{number % 50}"), 0.0)
    with pytest.raises(Full, match="app proxy has"):
        table.expect(question("c-1", "carol"), 0.0)
    table.end("ann-0")
    table.expect(question("ann-more"), 0.0)
