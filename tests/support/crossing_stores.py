"""What callers do to memory stores that are none of theirs: every route, every way in."""

from collections.abc import Callable
from typing import Any

import httpx

from .anthropic_sdk import STORES
from .callers import calling, made_key
from .service import Service
from .store_dialects import DIALECTS, UNKNOWN, every_request

WORD = "storecanaryword"  # what no caller with some projects may see

Ask = Callable[[str, str, dict[str, Any] | None], httpx.Response]


def stock(service: Service, tenant: str) -> tuple[str, str, str]:
    """A store in a tenant, with a memory that has a past: their ids."""
    with calling(service, made_key(service.path, tenant=tenant)) as keeper:
        store = keeper.post(STORES, json={"name": WORD, "metadata": {WORD: WORD}}).json()["id"]
        memories = f"{STORES}/{store}/memories"
        held = keeper.post(memories, json={"path": f"/{WORD}", "content": WORD}).json()
        changed = {"path": f"/{WORD}/{WORD}", "content": f"{WORD} too"}
        assert keeper.post(f"{memories}/{held['id']}", json=changed).status_code == 200
    return store, held["id"], held["memory_version_id"]


def knock(ask: Ask, ids: tuple[str, str, str]) -> set[str]:
    """Ask for everything with ids that are there and with others: the same refusal.

    Answers the names of the operations that were asked for.
    """
    there, nowhere = (
        [it for dialect in DIALECTS for it in every_request(*of, dialect)] for of in (ids, UNKNOWN)
    )
    for one, other in zip(there, nowhere, strict=True):
        answers = [ask(asked.method, asked.path, asked.body) for asked in (one, other)]
        assert [answer.status_code for answer in answers] == [403, 403]
        assert answers[0].json()["error"] == answers[1].json()["error"]
    return {asked.name for asked in there}
