"""A service with something in everything that the console shows, hostile text in each of it."""

from .service import Service, observation

HOSTILE = '<img src=x onerror=alert(1)><b id="hostile">b</b> \u202egnp.exe\u200b'
PROMPT = "why do ordres wait in the queue"


def seed(service: Service, *, is_hostile: bool = True) -> None:
    def save(content: str, **fields: object) -> None:
        body = observation(content, **{"project": "shop", **fields})
        service.http.post("/observations", json=body).raise_for_status()

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
    service.clock.advance(days=2)
