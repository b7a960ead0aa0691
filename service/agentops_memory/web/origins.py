"""Which web pages may ask the service: its own, and those of the origins that are allowed."""

import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address

from ..settings.parsing import PORTS, canonical_origin


def is_welcome(origin: str, hosts: Collection[str], allowed: Collection[str]) -> bool:
    """Whether a page of this origin may ask the service that it calls by these names.

    The service's own origin is its name with http or https, so that a proxy may
    add the latter. An origin that a browser hides (`null`) is nobody's.
    """
    page = canonical_origin(origin)
    return page is not None and (page in allowed or _is_own(page, hosts))


def is_loopback(host: str) -> bool:
    """Whether the host is this machine and nothing else: localhost, 127.0.0.0/8 or ::1.

    No host is every interface, and any other name may lead anywhere.
    """
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def local_names(host: str) -> frozenset[str] | None:
    """What a service may be called that listens on this host; None for any name.

    On loopback: localhost, 127.0.0.1, [::1] and the host itself.
    """
    if not is_loopback(host):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host})


def _is_own(page: str, hosts: Collection[str]) -> bool:
    own = (f"{scheme}://" for scheme in PORTS)
    return bool(hosts) and any(
        all(canonical_origin(start + h) == page for h in hosts) for start in own
    )


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that the resolver would take the host for: `127.1` is 127.0.0.1."""
    try:
        address = ip_address(host)
    except ValueError:
        return _short_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def _short_address(host: str) -> IPv4Address | None:
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):  # the latter for signs that no name has
        return None
