"""What tests of OpenWOP's adapter share: hosts with keys of their own, refs nobody has used."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from urllib.parse import quote

import httpx

from .callers import calling, made_key
from .openwop_hosts import Host, Json, ok
from .samples import examples
from .service import Service

NEVER = f"mem_{'0' * 32}"  # an id that was never given
SECRET = "sk-" + "Zq7xylograph" * 2  # in pieces, so that nobody takes this file for a leak
EXAMPLES = examples(25)

MARK = "[REDACTED:"

_NUMBERS = count()


def anew(host: Host) -> Host:
    """The same host at a ref that nobody has used."""
    return replace(host, ref=f"anew/{next(_NUMBERS)}")


@contextmanager
def keyed(
    service: Service, role: str = "writer", tenant: str = "default", *projects: str
) -> Iterator[Host]:
    """A host that brings a new key."""
    token = made_key(service.path, role, tenant, projects or ("*",))
    with calling(service, token) as http:
        yield Host(http)


def named(memory: str) -> str:
    """An id as a part of a path."""
    return quote(memory, safe="")


def provenance(host: Host, memory: str) -> httpx.Response:
    return host.ask("GET", f"/provenance/{named(memory)}", params={"memoryRef": host.ref})


def of_one(host: Host, memory: str) -> list[httpx.Response]:
    """The answers of every route that names one entry, the deletion last."""
    return [host.get(named(memory)), provenance(host, memory), host.delete(named(memory))]


def counted(host: Host) -> dict[str, tuple[int, int]]:
    """Entries and bytes of each ref that holds some, as the list of refs tells them."""
    told: list[Json] = ok(host.ask("GET", "/refs", params={"limit": 1000}))["refs"]
    assert all(it.keys() == {"memoryRef", "entries", "bytes"} for it in told)
    return {it["memoryRef"]: (it["entries"], it["bytes"]) for it in told if it["entries"]}


def page(host: Host, **query: object) -> Json:
    """A whole answer of the list."""
    answer: Json = ok(host.ask("GET", "/memory", params={"memoryRef": host.ref, **query}))
    assert answer.keys() - {"next"} == {"memoryRef", "entries"}
    if MARK not in answer["memoryRef"]:  # which stands for a secret in a ref
        assert answer["memoryRef"] == host.ref
    return answer


def said(entries: list[Json]) -> list[str]:
    """What the entries say."""
    return [entry["content"] for entry in entries]
