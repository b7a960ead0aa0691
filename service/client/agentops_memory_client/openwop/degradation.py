"""What a host lacks of the memory that an agent asks for (RFC 0080): pure."""

from collections.abc import Callable, Mapping
from typing import Any

BACKEND = "long-term"  # a value of memoryBackends; the dimension has another name


def memory_degradation(
    shape: Mapping[str, Any], advertisement: Mapping[str, Any]
) -> dict[str, bool | list[str]]:
    """The fields of an inventory entry that say what of the shape the host cannot satisfy.

    `shape` is an agent's `memoryShape`, of which what is `true` is asked for;
    `advertisement` is the host's discovery document, or the `capabilities` of it.
    Empty if all is satisfied; else `memoryDegraded`, which is true, and
    `degradedMemoryDimensions` in the order in which they are published.
    """
    asked = {it for name, asks in ASKED.items() if shape.get(name) is True for it in asks}
    lacking = [name for name, has in DIMENSIONS.items() if name in asked and not has(advertisement)]
    return {"memoryDegraded": True, "degradedMemoryDimensions": lacking} if lacking else {}


def _reads(host: Mapping[str, Any]) -> bool:
    return _family(host, "memory").get("supported") is True


def _writes(host: Mapping[str, Any]) -> bool:
    return _reads(host) and _family(host, "memory").get("writable") is not False


def _lasts(host: Mapping[str, Any]) -> bool:
    backends = _family(host, "agents").get("memoryBackends")
    return isinstance(backends, list | tuple) and BACKEND in backends


def _family(host: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A family of capabilities, at the root or, as older hosts have it, below `capabilities`."""
    wrapper = host.get("capabilities")
    places = (host, wrapper if isinstance(wrapper, Mapping) else {})
    found = (place[name] for place in places if isinstance(place.get(name), Mapping))
    return next(found, {})


# Those of the eight that a shape can ask for, in the published order.
DIMENSIONS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "read": _reads,
    "write": _writes,
    "long-term-durability": _lasts,
}
ASKED: Mapping[str, tuple[str, ...]] = {
    "scratchpad": ("read", "write"),
    "conversation": ("read", "write"),
    "longTerm": ("read", "write", "long-term-durability"),
}
