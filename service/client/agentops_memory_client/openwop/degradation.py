"""What a host lacks of the memory that an agent asks for (RFC 0080): pure."""

from collections.abc import Mapping
from typing import Any

BACKEND = "long-term"  # a value of memoryBackends; the dimension has another name
# What a shape can ask for, of the eight dimensions.
ASKED: Mapping[str, tuple[str, ...]] = {
    "scratchpad": ("read", "write"),
    "conversation": ("read", "write"),
    "longTerm": ("read", "write", "long-term-durability"),
}


def memory_degradation(
    shape: Mapping[str, Any], advertisement: Mapping[str, Any]
) -> dict[str, bool | list[str]]:
    """The fields of an inventory entry that say what of the shape the host cannot satisfy.

    `shape` is an agent's `memoryShape`, of which what is `true` is asked for;
    `advertisement` is the host's discovery document, or the `capabilities` of it.
    Empty if all is satisfied; else `memoryDegraded`, which is true, and
    `degradedMemoryDimensions` in the order in which they are published.
    """
    memory = _family(advertisement, "memory")
    backends = _family(advertisement, "agents").get("memoryBackends")
    reads = memory.get("supported") is True
    has = {
        "read": reads,
        "write": reads and memory.get("writable") is not False,
        "long-term-durability": isinstance(backends, list | tuple) and BACKEND in backends,
    }
    asked = {it for name, asks in ASKED.items() if shape.get(name) is True for it in asks}
    lacking = [name for name, is_there in has.items() if name in asked and not is_there]
    return {"memoryDegraded": True, "degradedMemoryDimensions": lacking} if lacking else {}


def _family(host: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A family of capabilities, at the root or, as older hosts have it, below `capabilities`."""
    wrapper = host.get("capabilities")
    places = (host, wrapper if isinstance(wrapper, Mapping) else {})
    return next((it[name] for it in places if isinstance(it.get(name), Mapping)), {})
