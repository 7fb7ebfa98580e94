"""Bounds by address: a client of IPv6 has more addresses than could ever be counted."""

import pytest

from fairlead_gateway.access.passwords import ATTEMPTS_PER_MINUTE, Passwords, client_network
from fairlead_gateway.errors import HttpError


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.9", "10.0.0.9"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_an_address_counts_under_its_network(address: str, network: str) -> None:
    """What is no address counts by itself."""
    assert client_network(address) == network


async def test_other_addresses_of_one_network_give_no_further_tries() -> None:
    """One client that tries one password with many names from many addresses of its own is bounded; another network is not."""
    passwords = Passwords(lambda: 0.0)
    for number in range(ATTEMPTS_PER_MINUTE):
        await passwords.require_room(f"user-{number}", f"2001:db8::{number:x}")
    with pytest.raises(HttpError):
        await passwords.require_room("one-more", "2001:db8::ffff")
    await passwords.require_room("one-more", "2001:db8:0:1::ffff")
