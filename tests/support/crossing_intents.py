"""What callers do with intents: each works on one of its own, and tries what is another's.

An administrator takes part in every intent of its tenant; so each asks with a key of a writer
that may make intents. Whatever it may not see is to it as what never was.
"""

from itertools import count

from .openintent_agents import MEMORY, Json
from .openintent_team import COORDINATORS, INTENTS, TASKS
from .parties import Party, Place, Work, same

OF_INTENTS = {
    f"openintent_{name}"
    for name in (
        "create_intent", "get_intent", "create_task", "get_task", "update_task", "list_tasks",
        "log_event", "list_events", "create_coordinator", "get_coordinator", "delete_coordinator",
        "list_coordinators", "get_access_list", "create_grant", "delete_grant",
    )
}  # fmt: skip
NO_WORK = Work(*(f"{kind}_{'0' * 32}" for kind in ("intent", "task", "coord", "grant")))


def work_on_intents(place: Place, me: Party) -> None:
    """Every route, over an intent of its own; then what others have, with what it has open."""
    mine = _begun(me)
    for other in place.others(me):
        for theirs in other.works:
            _try(me, mine, theirs)
    _ended(me, mine)
    me.works.append(mine)
    place.driven |= OF_INTENTS


def reach_for_intents(place: Place, me: Party) -> None:
    """All that others have worked on, now that each has done its own."""
    mine = _begun(me)
    for other in place.others(me):
        assert other.works
        for theirs in other.works:
            _try(me, mine, theirs)


def _begun(me: Party) -> Work:
    """An intent with all that there can be of one, which is told to who made it."""

    def made(path: str, **body: object) -> Json:
        key = f"once-{len(me.works)}-{next(turns)}"  # as others have it
        answer = me.work("POST", path, body, **{"Idempotency-Key": key})
        assert answer.status_code == 201, answer.text
        told: Json = answer.json()
        return told

    turns = count()
    agent, text = f"agent-{me.number}", {"text": me.word}
    one = made(INTENTS, title=f"of {me.word}", description=me.word, state=text)["id"]
    said = {"intent_id": one, "assigned_agent": agent, "input": text}
    task = made(TASKS, name=f"do {me.word}", **said)["id"]
    policy = {"inherit_from_parent": True}
    part = {"intent_id": one, "name": me.word, "parent_task_id": task, "memory_policy": policy}
    me.work("POST", TASKS, part)
    coordinator = made(COORDINATORS, intent_id=one, agent_id=agent, metadata=text)["id"]
    grant = made(f"{INTENTS}/{one}/acl/entries", principal_id="friend", reason=me.word)["id"]
    made(f"{INTENTS}/{one}/events", event_type="comment", payload=text)
    for tier in ("working", "episodic"):
        entry = {
            "agent_id": agent, "namespace": "work", "key": f"{tier} {task}", "value": text,
            "memory_type": tier, "scope": {"task_id": task}, "tags": [me.word],
        }  # fmt: skip
        me.entries.append(made(MEMORY, **entry)["id"])
    mine = Work(one, task, coordinator, grant)
    for path in _looks(mine):
        answer = me.work("GET", path)
        assert answer.status_code == 200, path
        assert me.word in answer.text, path
    return mine


def _ended(me: Party, mine: Work) -> None:
    """Its working memory is archived, and whoever took part does so no more."""
    done = {"status": "completed", "output": {"text": me.word}}
    assert me.work("PATCH", f"{TASKS}/{mine.task}", done, **{"If-Match": "1"}).is_success
    archived = me.work("GET", f"{INTENTS}/{mine.intent}/events?event_type=memory.archived")
    assert [it["payload"]["entries_archived"] for it in archived.json()] == [1]
    assert me.word in archived.text
    assert me.work("DELETE", f"{COORDINATORS}/{mine.coordinator}").is_success
    assert me.work("DELETE", f"{INTENTS}/{mine.intent}/acl/entries/{mine.grant}").is_success


def _looks(of: Work) -> tuple[str, ...]:
    one = f"{INTENTS}/{of.intent}"
    return (
        one, f"{TASKS}/{of.task}", f"{COORDINATORS}/{of.coordinator}", f"{one}/tasks",
        f"{one}/tasks?status=pending", f"{one}/coordinators", f"{one}/acl", f"{one}/events",
        f"{one}/events?after=0&limit=1000", f"{one}/events?event_type=comment",
    )  # fmt: skip


def _try(me: Party, mine: Work, theirs: Work) -> None:
    """Whatever is asked of another's is answered as of nobody's."""
    agent = f"agent-{me.number}"

    def asked(method: str, of: Work, path: str, body: Json | None = None) -> int:
        answers = [
            me.work(method, path.format(it=it), _filled(body, it), **{"If-Match": "1"})
            for it in (of, NO_WORK)
        ]
        same(*answers)
        return answers[0].status_code

    for look, nobodys in zip(_looks(theirs), _looks(NO_WORK), strict=True):
        answers = [me.work("GET", path) for path in (look, nobodys)]
        same(*answers)
        assert answers[0].status_code == 404
    one, acl = f"{INTENTS}/{{it.intent}}", f"{INTENTS}/{{it.intent}}/acl/entries"
    deeds: list[tuple[str, str, Json | None]] = [
        ("POST", TASKS, {"intent_id": "{it.intent}", "name": "mine", "assigned_agent": agent}),
        ("PATCH", f"{TASKS}/{{it.task}}", {"assigned_agent": agent}),
        ("PATCH", f"{TASKS}/{{it.task}}", {"status": "completed"}),
        ("POST", f"{one}/events", {"event_type": "comment", "payload": {}}),
        ("POST", COORDINATORS, {"intent_id": "{it.intent}", "agent_id": agent}),
        ("DELETE", f"{COORDINATORS}/{{it.coordinator}}", None),
        ("POST", acl, {"principal_id": agent}),
        ("DELETE", f"{acl}/{{it.grant}}", None),
    ]  # fmt: skip
    for method, path, body in deeds:
        assert asked(method, theirs, path, body) == 404, path
    part = {"intent_id": mine.intent, "name": "part", "parent_task_id": "{it.task}"}
    assert asked("POST", theirs, TASKS, part) == 400
    other = f"{INTENTS}/{mine.intent}/acl/entries/{{it.grant}}"
    assert asked("DELETE", theirs, other) == 404
    for name in ("task", "intent"):  # labels, without effect
        label = getattr(theirs, name)
        entry = {
            "agent_id": agent, "namespace": "labels", "key": label, "value": {},
            "memory_type": "working", "scope": {f"{name}_id": label},
        }  # fmt: skip
        assert me.work("POST", MEMORY, entry).status_code in (201, 409)
        found = me.work("GET", f"{MEMORY}?scope.{name}_id={label}").json()
        assert [it["agent_id"] for it in found["entries"]] == [agent]
        assert found["total"] == 1


def _filled(body: Json | None, of: Work) -> Json | None:
    if body is None:
        return None
    return {
        name: value.format(it=of) if isinstance(value, str) else value
        for name, value in body.items()
    }
