"""The guard against server-side request forgery: which addresses may be connected to.

It looks at the very address a socket is about to connect to. A check of the host name would not
do: names change between check and use, and an address has many spellings.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

__all__ = [
    "EVERYWHERE",
    "NO_ADDRESS",
    "Address",
    "AddressRefused",
    "Network",
    "check_address",
    "guarded",
]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]
"""Family, kind, protocol, name and socket address, as `getaddrinfo` has them."""

NO_ADDRESS = "not an address"
EVERYWHERE: tuple[Network, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))

# The special-purpose registries of IANA, and what clouds have added; the first that fits names it.
_FORBIDDEN: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for kind, networks in (
        ("a metadata service", ("169.254.169.254/32", "168.63.129.16/32", "fd00:ec2::254/128")),
        ("unspecified", ("0.0.0.0/8", "::/128")),
        ("loopback", ("127.0.0.0/8", "::1/128")),
        ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
        ("unique-local", ("fc00::/7",)),
        ("link-local", ("169.254.0.0/16", "fe80::/10", "fec0::/10")),
        ("shared by a carrier's customers", ("100.64.0.0/10",)),
        ("multicast", ("224.0.0.0/4", "ff00::/8")),
        ("a 6to4 tunnel", ("192.88.99.0/24", "2002::/16")),
        ("a Teredo tunnel", ("2001::/32",)),
        ("for documentation", ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")),
        ("for documentation", ("2001:db8::/32", "3fff::/20")),
        ("for benchmarks", ("198.18.0.0/15",)),
        ("reserved", ("192.0.0.0/24", "240.0.0.0/4", "2001::/23")),
    )
    for network in networks
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressRefused(OSError):  # noqa: N818 - reads as the outcome it becomes
    """The socket was about to connect to an address that is not allowed."""

    def __init__(self, address: str, kind: str) -> None:
        # The same text for all: when every address of a host is refused, the connector raises
        # one of the refusals as it is instead of an OSError that has forgotten what happened.
        super().__init__("address not allowed")
        self.address = address
        self.kind = kind


def check_address(address: str, allowed: Sequence[Network] = ()) -> str | None:
    """Return what kind of forbidden address it is, or `None` if it may be connected to.

    Forbidden is all that is not a public unicast address, and what is no address at all. IPv4
    inside IPv6 (mapped, NAT64) is judged by the IPv4 address that the packets would reach.

    >>> check_address("::ffff:127.0.0.1")
    'loopback'
    >>> check_address("10.1.2.3", [ip_network("10.1.0.0/16")])
    """
    try:
        written = ip_address(address)
    except ValueError:
        return NO_ADDRESS
    reached = _embedded(written) or written
    if any(one in network for network in allowed for one in (written, reached)):
        return None
    for network, kind in _FORBIDDEN:
        if reached in network:
            return kind
    if isinstance(reached, IPv6Address) and reached not in _GLOBAL_UNICAST:
        return "reserved"
    return None


def guarded(allowed: Sequence[Network]) -> Callable[[AddressInfo], socket.socket]:
    """Return what makes sockets, and raises `AddressRefused` instead of one that must not be."""

    def make_socket(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, place = info
        refusal = check_address(str(place[0]), allowed)
        if refusal is not None:
            raise AddressRefused(str(place[0]), refusal)
        return socket.socket(family=family, type=kind, proto=protocol)

    return make_socket


def _embedded(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in _NAT64):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None
