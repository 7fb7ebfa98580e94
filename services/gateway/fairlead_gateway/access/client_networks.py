"""Networks of clients, by which attempts are bounded. Pure."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

#: Bits of a network of IPv6 that belongs to one client: providers give each customer that many or more addresses.
NETWORK_BITS = 64
_REMEMBERED_MAX = 4096


@lru_cache(_REMEMBERED_MAX)
def client_network(address: str) -> str:
    """Return the network of an address under which attempts are counted: an IPv4 address itself, the network of an IPv6 address. One
    client has 2**64 addresses of the latter, and a bound of each would bound nothing. Other texts are returned as they are.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), NETWORK_BITS), strict=False))
