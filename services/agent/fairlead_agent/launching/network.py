"""Which network interface carries this node's address, as the kernel says."""

import array
import fcntl
import socket
import struct

_SIOCGIFCONF = 0x8912
#: struct ifreq on 64-bit Linux: a name of 16 bytes, and an address whose IPv4 begins at its fourth.
_NAME_BYTES, _ENTRY_BYTES = 16, 40
_ENTRIES_MAX = 1024


def interface_of(address: str) -> str:
    """The interface's name; "" where the address is no IPv4 address (or name of one) of this network namespace."""
    try:
        wanted = socket.gethostbyname(address)
    except OSError:
        return ""
    return next((name for name, found in _addresses() if found == wanted), "")


def _addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address), aliases under the name of their interface."""
    entries = array.array("B", bytes(_ENTRY_BYTES * _ENTRIES_MAX))
    where, size = entries.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        filled = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iL", size, where))
    used: int = struct.unpack("iL", filled)[0]
    data = entries.tobytes()[:used]
    found: list[tuple[str, str]] = []
    for at in range(0, used, _ENTRY_BYTES):
        name = data[at : at + _NAME_BYTES].partition(b"\0")[0].decode()
        found.append((name.partition(":")[0], socket.inet_ntoa(data[at + _NAME_BYTES + 4 : at + _NAME_BYTES + 8])))
    return found
