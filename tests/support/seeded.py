"""A service with something in everything that the console shows, hostile text in each of it."""

from collections.abc import Callable
from datetime import datetime, timedelta

from .service import Service, observation

MARKUP = '<img src=x onerror=alert(1)><b id="hostile">b</b>'
HOSTILE = f"{MARKUP} \u202egnp.exe\u200b"
PROMPT = "why do ordres wait in the queue"


def seed(service: Service, *, is_hostile: bool = True) -> None:
    def save(content: str, similar: int = 0, **fields: object) -> None:
        body = observation(content, **{"project": "shop", **fields})
        service.http.post(f"/observations?similar={similar}", json=body).raise_for_status()

    save(
        "Every order goes on a queue before it is billed.\n\nReason: the billing provider times "
        "out under load.\nFiles: orders/queue.py, orders/worker.py.",
        type="decision", title="Orders go through a queue", tags=["orders", "billing"],
        topic_key="orders/queue",
    )  # fmt: skip
    service.clock.advance(days=9)
    save(
        "Every order goes on one of two queues before it is billed.\n\nReason: the billing "
        "provider times out under load.\nFiles: orders/queue.py, orders/express.py.",
        type="decision", title="Orders go through two queues", tags=["orders", "express"],
        topic_key="orders/queue", pinned=True,
    )  # fmt: skip
    save(
        "Orders wait in a queue before they are billed, as the provider times out.",
        type="decision", title="Orders wait in a queue", tags=["orders"],
    )  # fmt: skip
    save(
        "The worker retried after a timeout although the provider had the order. An idempotency "
        "key goes with each request now.",
        type="bugfix", title="Invoices were sent twice", tags=["billing"],
    )  # fmt: skip
    if is_hostile:
        save(HOSTILE, type=HOSTILE[:50], title=HOSTILE, tags=[HOSTILE[:40]], scope=HOSTILE[:20])
    for number in range(30):
        service.clock.advance(hours=7)
        save(
            f"Courier {number} takes {number * 7} parcels, and more on Fridays. " * 4,
            type=("discovery", "config", "pattern")[number % 3],
            title=f"How many parcels courier {number} takes", tags=["couriers"],
            session_id=f"s{number // 10 + 2}",
        )  # fmt: skip
    messages = [
        {
            "role": "user",
            "content": f"Make the orders reliable{f' {HOSTILE}' if is_hostile else '.'}",
        },
        {"role": "assistant", "content": "Done."},
    ]
    service.http.post("/sessions/s1/end", json={"messages": messages}).raise_for_status()
    _seed_bakery(save, MARKUP if is_hostile else "the baker", service.clock.now)
    service.clock.advance(days=2)


def _seed_bakery(save: Callable[..., None], name: str, now: datetime) -> None:
    """What is to be looked at: due, ending and alike; a project and a session of this name."""
    where = {"project": "bakery", "session_id": name, "tags": [name[:40]]}
    save(
        "The oven takes 40 minutes to 230 degrees.", type="config", title=f"The oven of {name}",
        review_at=f"{now + timedelta(days=1):%FT%TZ}", **where,
    )  # fmt: skip
    save(
        f"Rye bread is cheaper this week, says {name}.", type="note", title="Rye bread on sale",
        expires_at=f"{now + timedelta(days=5):%FT%TZ}", **where,
    )  # fmt: skip
    for place in ("", " and covered"):
        save(
            f"The dough of {name} rests overnight in the cold room{place}, or it tears.",
            similar=3, title=f"Dough rests overnight{place}", **where,
        )  # fmt: skip
    save("Flour comes on Mondays.", project=name, session_id="flour", title="Flour")
