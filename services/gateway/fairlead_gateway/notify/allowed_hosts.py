"""Hosts and addresses that webhooks may be sent to. A URL is a person's text, and the notifier stands inside the cluster's network.

By default any name over https is allowed, and of addresses only public ones. The addresses of a name are judged for each connection, which
goes to the judged address, so a name that is rebound between look-up and connection gains nothing. Pure: names
are resolved by `webhook.py`. Start at `AllowedHosts`.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

#: Characters of a URL.
URL_CHARS_MAX = 2000
_NAT64 = IPv6Network("64:ff9b::/96")


class HostRefused(Exception):
    """A host or address is not allowed. The message is for the rule's owner, and names no host and no address."""


class WebhookUrl(NamedTuple):
    """Parts of a webhook's URL, checked."""

    scheme: str
    host: str
    port: int
    #: Path with its query.
    target: str


class AllowedHosts(NamedTuple):
    """Allow-lists of webhooks."""

    #: Names ("ci.example.org"), and "*.example.org" for all names below one; (): any name.
    hosts: tuple[str, ...] = ()
    #: Networks that are not public and allowed all the same, also without TLS: "10.1.0.0/16".
    networks: tuple[str, ...] = ()

    def require_host(self, host: str) -> None:
        """Raise HostRefused for a name that no entry allows. An address is a name, too."""
        if self.hosts and not any(_matches(host, entry) for entry in self.hosts):
            raise HostRefused("the host is not on the list of hosts that webhooks may go to")

    def require_address(self, text: str, scheme: str) -> None:
        """Raise HostRefused for an address that is neither public nor of an allowed network, and for plain http to a public one."""
        for address in _meanings(text):
            if any(address in ip_network(network) for network in self.networks if _same(address, network)):
                continue
            if not address.is_global or address.is_multicast:
                raise HostRefused("the host has an address that is not public, and no allowed network has it")
            if scheme != "https":
                raise HostRefused("a public address needs https")


def _matches(host: str, entry: str) -> bool:
    return host.endswith(entry[1:]) if entry.startswith("*.") else host == entry


def _same(address: IPv4Address | IPv6Address, network: str) -> bool:
    return ip_network(network).version == address.version


def _meanings(text: str) -> Iterable[IPv4Address | IPv6Address]:
    """Return an address, or the addresses that it wraps: a translator on the way would deliver to those."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv4Address):
        return (address,)
    if (mapped := address.ipv4_mapped) is not None:
        return (mapped,)
    if address in _NAT64:
        return (address, IPv4Address(int(address) & 0xFFFFFFFF))
    if (relayed := address.sixtofour) is not None:
        return (address, relayed)
    return (address, *(address.teredo or ()))


def is_address(host: str) -> bool:
    """Return True for an address in its usual form. Odd forms ("127.1") are names here, whose addresses are judged when looked up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def read_networks(words: Sequence[str]) -> tuple[str, ...]:
    """Return networks in their canonical text. Raise ValueError for one that cannot be read."""
    return tuple(str(ip_network(word, strict=False)) for word in words)
