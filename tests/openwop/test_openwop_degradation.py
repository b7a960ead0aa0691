"""What a host lacks of what an agent asks for: every shape, every advertisement."""

from collections.abc import Iterator, Mapping
from itertools import chain, combinations, product
from typing import Any

import httpx

from agentops_memory_client.openwop import memory_degradation

from ..support.openwop_hosts import DISCOVERY
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

Advertisement = dict[str, Any]

# The eight, in the published order, each with what advertises it.
DIMENSIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "read": {"memory": {"supported": True}},
    "write": {"memory": {"writable": True}},
    "search": {"memory": {"search": {"supported": True, "modes": ["filter"]}}},
    "long-term-durability": {"agents": {"memoryBackends": ["long-term"]}},
    "compaction": {"memory": {"compaction": {"supported": True}}},
    "attribution": {"memory": {"attribution": {"supported": True}}},
    "replay-snapshot": {"multiAgent": {"executionModel": {"version": 2}}},
    "retention": {"memory": {"retention": {"ttl": True, "forget": True}}},
}
SHAPES = {
    "scratchpad": {"read", "write"},
    "conversation": {"read", "write"},
    "longTerm": {"read", "write", "long-term-durability"},
}
NOTHING_LACKS: dict[str, object] = {}


def subsets(names: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))


def advertised(names: tuple[str, ...]) -> Advertisement:
    """What a host says that has just these."""
    families: Advertisement = {"memory": {"writable": False}, "agents": {}}
    for name in names:
        for family, members in DIMENSIONS[name].items():
            families.setdefault(family, {}).update(members)
    return families


def degraded(*names: str) -> dict[str, object]:
    return {"memoryDegraded": True, "degradedMemoryDimensions": list(names)} if names else {}


@requirement("OW-105")
@for_each("asks", [*subsets(SHAPES)])
def test_every_shape_is_told_what_every_advertisement_lacks(asks: tuple[str, ...]) -> None:
    shape = {name: name in asks for name in SHAPES}
    asked = {it for name in asks for it in SHAPES[name]}
    count = 0
    for names in subsets(DIMENSIONS):
        # Who is not supported at all does not write either, whatever else is said.
        has = {*names} - ({"write"} if "read" not in names else set())
        lacking = [it for it in DIMENSIONS if it in asked - has]
        families = advertised(names)

        for host in (families, {"capabilities": families}, {**families, "capabilities": families}):
            assert memory_degradation(shape, host) == degraded(*lacking), names
        count += 1
    assert count == 2**8


@requirement("OW-105")
def test_a_host_writes_unless_it_says_otherwise() -> None:
    shape = {"conversation": True}

    assert memory_degradation(shape, {"memory": {"supported": True}}) == NOTHING_LACKS
    for said in (True, None):
        host = {"memory": {"supported": True, "writable": said}}
        assert memory_degradation(shape, host) == NOTHING_LACKS
    reading = {"memory": {"supported": True, "writable": False}}
    assert memory_degradation(shape, reading) == degraded("write")


@requirement("OW-105")
def test_the_root_counts_before_the_wrapper_and_no_family_is_looked_for_in_another() -> None:
    full = advertised(tuple(DIMENSIONS))
    shape = dict.fromkeys(SHAPES, True)

    less = {"memory": {"supported": False}, "capabilities": full}
    assert memory_degradation(shape, less) == degraded("read", "write")
    misplaced = {"memory": full["memory"] | {"memoryBackends": ["long-term"]}}
    assert memory_degradation(shape, misplaced) == degraded("long-term-durability")
    renamed = full | {"agents": {"memoryBackends": ["longTerm", "long-term-durability"]}}
    assert memory_degradation(shape, renamed) == degraded("long-term-durability")


@requirement("OW-105")
def test_what_is_no_advertisement_claims_nothing() -> None:
    shape = dict.fromkeys(SHAPES, True)
    everything = degraded("read", "write", "long-term-durability")
    odd: tuple[Any, ...] = (None, True, "long-term", [], 7)
    for memory, agents, wrapper in product(odd, odd, odd):
        host = {"memory": memory, "agents": agents, "capabilities": wrapper}
        assert memory_degradation(shape, host) == everything
    supports: tuple[Any, ...] = ("true", 1, {}, None)
    holds: tuple[Any, ...] = ("long-term", {"long-term": 1}, 1)
    for supported, backends in product(supports, holds):
        host = {"memory": {"supported": supported}, "agents": {"memoryBackends": backends}}
        assert memory_degradation(shape, host) == everything
    assert memory_degradation({}, {}) == NOTHING_LACKS
    for said in (False, None, "yes", 1):
        assert memory_degradation({"longTerm": said, "elsewhere": True}, {}) == NOTHING_LACKS


@requirement("OW-105")
def test_this_service_lacks_nothing_that_a_shape_asks_for(service: Service) -> None:
    document = httpx.get(service.url + DISCOVERY).json()

    for host in (document, document["capabilities"]):
        assert memory_degradation(dict.fromkeys(SHAPES, True), host) == NOTHING_LACKS
