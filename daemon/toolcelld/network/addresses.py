"""Which addresses lead to this machine or its link, however they are written.

A name server must not turn a granted name into the services of the host: its loopback, its other addresses, the metadata
service of a cloud. An IPv6 address can contain an IPv4 one, and a gateway or the kernel would connect to that one.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from typing import Final

from toolcelld.config.hosts import Address, as_address

COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
ISATAP: Final = (0x00005EFE, 0x02005EFE)
LOW: Final = 0xFFFFFFFF
FOREIGN: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8:ffff::1"}
"""Addresses of documentation, which no machine has: if they can be bound, the kernel lets any address be bound."""


def leads_home(text: str, own: Callable[[str], bool] | None = None) -> bool:
    """Return whether an address is this machine's or its link's, or contains one that is; True for an invalid one.

    Args:
        text: The address, with or without a zone.
        own: Returns whether an address is this machine's. Default: `is_own`.
    """
    address = as_address(without_zone(text))
    return address is None or any(_is_home(each, own or is_own) for each in (address, *_embedded(address)))


def without_zone(text: str) -> str:
    """Return an address without the interface that it is to be used on."""
    return text.partition("%")[0]


def _is_home(address: Address, own: Callable[[str], bool]) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or (address.version == 4 and int(address) >> 24 == 0)
        or own(str(address))
    )


def _embedded(address: Address) -> Iterator[Address]:
    """Yield the IPv4 addresses that an IPv6 address contains, in every form that defines where they are."""
    if address.version == 4:
        return
    number = int(address)
    for found in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())):
        if found is not None:
            yield found
    if address in COMPATIBLE or any(address in network for network in NAT64):
        yield ipaddress.IPv4Address(number & LOW)
    if address in NAT64[1]:  # a prefix of 48, 56 or 64 bits; bits 64 to 71 are zero (RFC 6052)
        for after in (48, 56, 64):
            yield _around_the_zero(number, after)
    if (number >> 32) & LOW in ISATAP:
        yield ipaddress.IPv4Address(number & LOW)


def _around_the_zero(number: int, after: int) -> ipaddress.IPv4Address:
    octets = number.to_bytes(16, "big")
    without = octets[:8] + octets[9:]
    start = after // 8
    return ipaddress.IPv4Address(without[start : start + 4])


def is_own(text: str) -> bool:
    """Return whether an address is one of this machine's: what can be bound is."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    if not _can_bind(family, text):
        return False
    # With ip_nonlocal_bind every address can be bound; then the route to an own address begins at the address.
    return not _can_bind(family, FOREIGN[family]) or _source_for(family, text) == text


def _can_bind(family: int, text: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as any_socket:
            any_socket.bind((text, 0))
    except OSError:
        return False
    return True


def _source_for(family: int, text: str) -> str:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as any_socket:
            any_socket.connect((text, 9))  # sends nothing
            return str(any_socket.getsockname()[0])
    except OSError:
        return ""
