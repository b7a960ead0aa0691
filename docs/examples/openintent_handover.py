"""Ada reads invoices and disappears; Ben takes over her task.

It prints:

    left: {'account': {'number': '555 0100'}, 'progress': {'done': 12}}
    archived: progress {'done': 47}
    archived: progress {'done': 12}
    archived: account redacted
    working: [] []
    Ada sees: ['dates']
    Ben sees: []
"""

from openintent import EventType, OpenIntentClient


def client(agent: str) -> OpenIntentClient:
    return OpenIntentClient("http://localhost:7437", api_key="amk_...", agent_id=agent)


with client("lead") as lead, client("ada") as ada, client("ben") as ben:
    intent = lead.create_intent("Invoices of April")
    lead.create_coordinator_lease("lead", intent.id)
    task = lead.create_task(intent.id, "Read them", assigned_agent="ada")
    scope = {"task_id": task.id}

    # Ada notes its progress, an account number that no log may hold, and a fact to keep.
    ada.update_task(task.id, task.version, "running")
    ada.create_memory("ada", "invoices", "progress", {"done": 12}, scope=scope)
    account = {"number": "555 0100"}
    ada.create_memory(
        "ada", "invoices", "account", account, scope=scope, sensitivity="confidential"
    )
    ada.create_memory("ada", "invoices", "dates", {"begin": "month"}, memory_type="episodic")

    # Ada does not answer any more. Ben continues from its notes.
    task = lead.get_task(task.id)
    lead.update_task(task.id, task.version, assigned_agent="ben")
    left = {entry.key: entry.value for entry in ben.list_memory("ada")}
    print("left:", left)
    done = {"done": left["progress"]["done"] + 35}
    ben.create_memory("ben", "invoices", "progress", done, scope=scope)
    task = ben.get_task(task.id)
    ben.update_task(task.id, task.version, "completed", output=done)

    for event in lead.get_events(intent.id, event_type=EventType.MEMORY_ARCHIVED):
        for entry in event.payload["snapshot"]:
            print("archived:", entry["key"], entry.get("value", "redacted"))
    print("working:", ada.list_memory("ada", memory_type="working"), ben.list_memory("ben"))
    print("Ada sees:", [entry.key for entry in ada.list_memory("ada")])
    print("Ben sees:", [entry.key for entry in ben.list_memory("ada")])
