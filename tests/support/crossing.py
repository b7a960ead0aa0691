"""Callers side by side, who do what they may, and try what is another's."""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

import httpx

from .answers import ANTHROPIC
from .openintent_agents import BATCH, COORDINATORS, INTENTS, MEMORY, NAMESPACES, TASKS, Json
from .store_dialects import DIALECTS, UNKNOWN, Request, every_request
from .stores import STORES, ok

NEVER = 987_654_321  # an id that was never given

Body = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Work:
    """The ids of an intent, and of what is of it."""

    intent: str
    task: str
    coordinator: str
    grant: str


@dataclass(kw_only=True)
class Party:
    """A caller, and what it knows to be its own."""

    tenant: str
    prefix: str
    number: int
    client: httpx.Client
    writer: httpx.Client  # with a key of an agent that may make intents
    live: dict[int, str] = field(default_factory=dict)  # the projects of its memories
    sessions: list[str] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)
    stores: list[str] = field(default_factory=list)  # their ids
    entries: list[str] = field(default_factory=list)  # of its own memory as an agent
    works: list[Work] = field(default_factory=list)  # its own
    proposals: list[str] = field(default_factory=list)  # their ids
    installed: list[str] = field(default_factory=list)  # what is applied of them

    @property
    def word(self) -> str:
        """What only this caller writes."""
        return f"canary{self.number}word"

    @property
    def trace(self) -> str:
        return f"{self.number + 1:032x}"

    @property
    def _headers(self) -> dict[str, str]:
        return {
            "traceparent": f"00-{self.trace}-00f067aa0ba902b7-01",
            "x-request-id": "any",  # else answers would differ by it
        }

    def ask(self, method: str, path: str, body: Body | None = None) -> httpx.Response:
        return self.client.request(method, path, json=body, headers=self._headers)

    def work(
        self, method: str, path: str, body: Body | None = None, **headers: str
    ) -> httpx.Response:
        return self.writer.request(method, path, json=body, headers=self._headers | headers)

    def alike(
        self, method: str, path: str, theirs: object, nobodys: object, body: Body | None = None,
        **headers: str,
    ) -> int:  # fmt: skip
        """The status of what is asked of another's, which is answered as of nobody's."""
        answers = [
            self.work(method, path.format(it=it), _filled(body, it), **headers)
            for it in (theirs, nobodys)
        ]
        same(*answers)
        return answers[0].status_code


@dataclass(kw_only=True)
class Place:
    """Callers side by side, and chance."""

    parties: list[Party]
    keepers: list[Party] = field(default_factory=list)  # of memory stores
    chance: random.Random

    def others(self, party: Party) -> list[Party]:
        return [other for other in self.parties if other is not party]

    def foreign_id(self, party: Party) -> int:
        """An id that another has, or had, and this one never."""
        ids = {i for other in self.others(party) for i in {*other.live, *other.dead}}
        return self.chance.choice(sorted(ids - {*party.live, *party.dead}) or [NEVER])

    def own_id(self, party: Party) -> int:
        return self.chance.choice(sorted(party.live) or [NEVER])

    def project(self, party: Party) -> str:
        return f"{party.prefix}{self.chance.choice('xy')}"

    def foreign_project(self, party: Party) -> str:
        others = [other for other in self.others(party) if other.prefix != party.prefix]
        return self.project(self.chance.choice(others))

    def body(self, party: Party, project: str, session: str) -> dict[str, object]:
        number = self.chance.randrange(6)
        return {
            "session_id": session, "project": project, "type": f"type {party.word}",
            "title": f"apple {number} {party.word}",
            "content": f"The apple {number} is {party.word}, and so is the pear.",
            "tags": [party.word],
            "topic_key": f"fruit/{number}" if self.chance.random() < 0.4 else None,
        }  # fmt: skip


def same(one: httpx.Response, other: httpx.Response, *, ids: tuple[int, int] = (0, 0)) -> None:
    """The same status, headers and bytes, but for the id where an answer names it again."""
    text = one.text.replace(f'"id":{ids[0]},"reason"', f'"id":{ids[1]},"reason"')
    assert (one.status_code, _plain(text)) == (other.status_code, _plain(other.text))
    changing = {"date", "content-length"}
    headers = [{k: v for k, v in a.headers.items() if k not in changing} for a in (one, other)]
    assert headers[0] == headers[1]


def _plain(text: str) -> str:
    """Without the instant of an export."""
    return text.partition('"exported_at"')[0] + text.partition('","sessions"')[2]


NOWHERE = "nobodys"  # a project that nobody has


def work_as_an_agent(place: Place, me: Party) -> None:
    """Save, look and delete in a project of one's own."""
    project = place.project(me)
    given = place.body(me, project, "s")
    note = {name: given[name] for name in ("type", "title", "content", "tags", "topic_key")}
    saved = re.search(r"memory (\d+)", _call(me, project, "mem_save", **note).text)
    assert saved is not None
    me.live[int(saved[1])] = project
    for tool in ("mem_search", "mem_context"):
        assert '"isError":false' in _call(me, project, tool, query="the aple pear").text
    assert '"isError":false' in _call(me, project, "mem_stats").text
    session = f"{me.tenant} {me.prefix} agent {project}"
    assert '"isError":false' in _call(me, project, "mem_session_end", session_id=session).text
    if place.chance.random() < 0.3:
        id_ = place.own_id(me)
        told = _call(me, project, "mem_delete", id=id_).text
        if f"Memory {id_} is deleted" in told:
            assert me.live.pop(id_) == project
            me.dead.add(id_)


def reach_as_an_agent(place: Place, me: Party) -> None:
    """Another's project is as nobody's, and another's memory as none, wherever it is asked for."""
    theirs = place.foreign_project(me)
    for tool, more in _LOOKS.items():
        answers = [(_call(me, project, tool, **more), project) for project in (theirs, NOWHERE)]
        assert _anonymous(*answers[0]) == _anonymous(*answers[1])
    note = {"title": me.word, "content": me.word}
    refused = [_anonymous(_call(me, name, "mem_save", **note), name) for name in (theirs, NOWHERE)]
    assert refused[0] == refused[1]
    assert '"isError":true' in refused[0]
    id_ = place.foreign_id(me)
    for tool, more in _TOUCHES.items():
        for project in (place.project(me), theirs):
            ids = [(_call(me, project, tool, id=each, **more), str(each)) for each in (id_, NEVER)]
            assert _anonymous(*ids[0]) == _anonymous(*ids[1])
            assert f"There is no memory {id_} in this project." in ids[0][0].text


_LOOKS: dict[str, dict[str, object]] = {
    "mem_stats": {}, "mem_context": {}, "mem_review": {},
    "mem_session_start": {"session_id": "nobody's"}, "mem_session_end": {"session_id": "nobody's"},
}  # fmt: skip
_TOUCHES: dict[str, dict[str, object]] = {
    "mem_get": {}, "mem_update": {"title": "mine"}, "mem_delete": {}, "mem_history": {},
    "mem_timeline": {}, "mem_confirm": {},
}  # fmt: skip


def _call(me: Party, project: str, tool: str, **arguments: object) -> httpx.Response:
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = me.ask("POST", f"/mcp/{project}", message)
    assert answer.status_code == 200, answer.text
    return answer


def _anonymous(answer: httpx.Response, name: str) -> str:
    """The answer without what names the project or the memory that was asked for."""
    return re.sub(r"mcp-[0-9a-f]{24}", "mcp-", answer.text.replace(f" {name} ", " NAME "))


def work_with_entries(place: Place, me: Party) -> None:
    """Every route, over entries of its own; then what others have."""
    agent = f"agent-{me.number}"

    def body(key: str, **fields: object) -> Json:
        return {
            "agent_id": agent, "namespace": "notes", "key": key, "value": {"text": me.word},
            "memory_type": "episodic", "tags": ["x"],
        } | fields  # fmt: skip

    made = me.ask("POST", MEMORY, body("a")).json()
    me.entries.append(made["id"])
    assert me.ask(
        "POST", BATCH, {"entries": [body("b"), body("c", memory_type="working")]}
    ).is_success
    assert me.ask("PATCH", f"{NAMESPACES}/team", {"permissions": {"default": "write"}}).is_success
    assert me.ask("POST", MEMORY, body(agent, memory_type="semantic", namespace="team",
                                       value={"by": agent})).is_success  # fmt: skip
    for path in (
        MEMORY, f"{MEMORY}/{made['id']}", f"{MEMORY}/search?q={me.word}", NAMESPACES,
        f"{NAMESPACES}/team", f"/api/v1/agents/{agent}/memory",
        f"/api/v1/agents/{agent}/memory/summary", f"/api/v1/agents/{agent}/events",
        "/.well-known/openintent.json",
    ):  # fmt: skip
        assert me.ask("GET", path).is_success, path
    kept, secret = f"/api/v1/agents/{agent}/memory/kept", {"value": me.word}
    assert me.ask("PUT", f"{kept}/f", secret).is_success
    assert len(me.ask("GET", kept).json()) == 1
    assert me.ask("GET", f"{kept}/f").json()["value"] == secret
    assert me.ask("PATCH", f"{MEMORY}/{made['id']}", {}).status_code == 428
    for other in place.others(me):
        name = f"agent-{other.number}"
        for entry in other.entries:
            assert me.ask("GET", f"{MEMORY}/{entry}").status_code == 404
            assert me.ask("DELETE", f"{MEMORY}/{entry}").status_code == 404
        assert me.ask("GET", f"/api/v1/agents/{name}/memory").is_success
        assert me.ask("GET", f"{MEMORY}/search?q={other.prefix}&namespace=*").is_success
        assert me.ask("GET", f"/api/v1/agents/{name}/memory/kept").json() == []
        assert me.ask("PUT", f"/api/v1/agents/{name}/memory/kept/f", {"value": 1}).is_client_error
        for path in ("events", "memory/summary", "memory/kept/f"):
            assert me.ask("GET", f"/api/v1/agents/{name}/{path}").status_code == 403
        assert me.ask("POST", MEMORY, body("d", agent_id=name)).status_code == 403
    assert me.ask("DELETE", f"{BATCH}?key=b").json() == {"deleted": 1, "has_more": False}
    doomed = me.ask("POST", MEMORY, body("e")).json()["id"]
    assert me.ask("DELETE", f"{MEMORY}/{doomed}").is_success


ONE = f"{INTENTS}/{{it.intent}}"
LOOKS = (
    ONE, f"{TASKS}/{{it.task}}", f"{COORDINATORS}/{{it.coordinator}}", f"{ONE}/tasks",
    f"{ONE}/tasks?status=pending", f"{ONE}/coordinators", f"{ONE}/acl", f"{ONE}/events",
    f"{ONE}/events?after=0&limit=1000", f"{ONE}/events?event_type=comment",
)  # fmt: skip
NO_WORK = Work(*(f"{kind}_{'0' * 32}" for kind in ("intent", "task", "coord", "grant")))


def work_on_intents(_: Place, me: Party) -> None:
    """Every route, over an intent of its own."""
    mine = _begun(me)
    _ended(me, mine)
    me.works.append(mine)


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
    for path in LOOKS:
        answer = me.work("GET", path.format(it=mine))
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


def _try(me: Party, mine: Work, theirs: Work) -> None:
    """Whatever is asked of another's is answered as of nobody's."""
    agent = f"agent-{me.number}"
    for path in LOOKS:
        assert me.alike("GET", path, theirs, NO_WORK) == 404, path
    acl = f"{ONE}/acl/entries"
    deeds: list[tuple[str, str, Json | None]] = [
        ("POST", TASKS, {"intent_id": "{it.intent}", "name": "mine", "assigned_agent": agent}),
        ("PATCH", f"{TASKS}/{{it.task}}", {"assigned_agent": agent}),
        ("PATCH", f"{TASKS}/{{it.task}}", {"status": "completed"}),
        ("POST", f"{ONE}/events", {"event_type": "comment", "payload": {}}),
        ("POST", COORDINATORS, {"intent_id": "{it.intent}", "agent_id": agent}),
        ("DELETE", f"{COORDINATORS}/{{it.coordinator}}", None),
        ("POST", acl, {"principal_id": agent}), ("DELETE", f"{acl}/{{it.grant}}", None),
        ("DELETE", f"{INTENTS}/{mine.intent}/acl/entries/{{it.grant}}", None),
        ("POST", TASKS, {"intent_id": mine.intent, "name": "a", "parent_task_id": "{it.task}"}),
    ]  # fmt: skip
    for method, path, body in deeds:
        status = me.alike(method, path, theirs, NO_WORK, body, **{"If-Match": "1"})
        assert status == (400 if body and "parent_task_id" in body else 404), path
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


def _filled(body: Body | None, of: object) -> Body | None:
    if body is None:
        return None
    return {
        name: value.format(it=of) if isinstance(value, str) else value
        for name, value in body.items()
    }


_REQUEST_ID = re.compile(r"\breq_\w+")  # one of its own for each request
NOBODYS = dict(zip(("store", "memory", "version"), UNKNOWN, strict=True))


def make_store(_: Place, me: Party) -> None:
    body = {"name": f"apples of {me.word}", "metadata": {"of": me.word}}
    made = me.ask("POST", (STORES, ANTHROPIC)[len(me.stores) % 2], body)
    assert made.is_success, made.text
    me.stores.append(made.json()["id"])


def write_entry(place: Place, me: Party) -> None:
    for store in _some(place, me.stores):
        body = {
            "path": f"{me.word}/{place.chance.randrange(6)}",
            "content": f"The apple is {me.word}, and so is the pear.",
        }
        assert me.ask("POST", f"{STORES}/{store}/memories", body).status_code in (201, 409)


def change_store(place: Place, me: Party) -> None:
    """Whatever is done to what is there; what is archived or redacted takes no change."""
    for store in _some(place, me.stores):
        at = f"{STORES}/{store}"
        for entry in _some(place, _ids(me, f"{store}/memories")):
            body = {"content": f"Another apple of {me.word}, {place.chance.random()}"}
            _done(me, "PUT", f"{at}/memories/{entry}", body)
            if place.chance.random() < 0.3:
                _done(me, "DELETE", f"{at}/memories/{entry}")
        for version in _some(place, _ids(me, f"{store}/versions")):
            _done(me, "POST", f"{at}/versions/{version}/redact")
        if place.chance.random() < 0.3:
            _done(me, "POST", f"{at}/archive")
        if place.chance.random() < 0.2:
            assert me.ask("DELETE", at).status_code == 204
            me.stores.remove(store)


def _done(me: Party, method: str, path: str, body: Body | None = None) -> None:
    answer = me.ask(method, path, body)
    assert answer.is_success or answer.status_code == 409, answer.text


def look_into_stores(_: Place, me: Party) -> None:
    """Every list holds just what is its own."""
    for stores in (STORES, ANTHROPIC):
        listed = ok(me.ask("GET", f"{stores}?include_archived=true&limit=100"))["data"]
        assert sorted(each["id"] for each in listed) == sorted(me.stores)
    for store in me.stores:
        told = ok(me.ask("GET", f"{STORES}/{store}"))
        entries = _ids(me, f"{store}/memories")
        assert told["entry_count"] == len(entries)
        found = _ids(me, f"{store}/search?q=apple")
        assert set(found) == set(entries)
        for entry in entries:
            assert me.word in ok(me.ask("GET", f"{STORES}/{store}/memories/{entry}"))["path"]
        for version in _ids(me, f"{store}/versions"):
            ok(me.ask("GET", f"{STORES}/{store}/versions/{version}"))


def touch_foreign_stores(place: Place, me: Party) -> None:
    """What the keeper of another tenant has is as what never was, alone and in a store of mine."""
    for other in place.keepers:
        if other is not me:
            theirs = _names(place, other)
            for mine in [{}, *({"store": store} for store in me.stores[:1])]:
                _assert_alike(me, theirs | mine, NOBODYS | mine)
            for cursor in ("after_id", "before_id"):
                me.ask("GET", f"{STORES}?{cursor}={theirs['store']}")


STORE_DEEDS = (make_store, write_entry, change_store, look_into_stores, touch_foreign_stores)


def _assert_alike(me: Party, theirs: dict[str, str], nobodys: dict[str, str]) -> None:
    """In both dialects."""
    for it, like in zip(_requests(theirs), _requests(nobodys), strict=True):
        if it.path == like.path:
            continue  # it names nothing of theirs
        one, other = (me.ask(each.method, each.path, each.body) for each in (it, like))
        one_text, other_text = (_REQUEST_ID.sub("", each.text) for each in (one, other))
        for kind, id_ in theirs.items():
            one_text = one_text.replace(id_, nobodys[kind])
        assert (one.status_code, one_text) == (other.status_code, other_text)
        is_filter = "entry_id=" in it.path and theirs["store"] == nobodys["store"]
        assert one.status_code == (200 if is_filter else 404), (it, one.text)


def _requests(ids: dict[str, str]) -> list[Request]:
    """Every way to name a store, or what is in one."""
    named = ids["store"], ids["memory"], ids["version"]
    found = [it for dialect in DIALECTS for it in every_request(*named, dialect)]
    versions = next(it for it in found if it.name == "list_versions")
    return [*found, versions._replace(path=f"{versions.path}?entry_id={ids['memory']}")]


def _names(place: Place, me: Party) -> dict[str, str]:
    """Ids that the party knows to be there, or that never were."""
    for store in _some(place, me.stores):
        entries, versions = _ids(me, f"{store}/memories"), _ids(me, f"{store}/versions")
        return {
            "store": store,
            "memory": (entries or [NOBODYS["memory"]])[0],
            "version": (versions or [NOBODYS["version"]])[0],
        }
    return NOBODYS


def _some(place: Place, ids: list[str]) -> list[str]:
    """One of them, if there are any."""
    return [place.chance.choice(ids)] if ids else []


def _ids(me: Party, path: str) -> list[str]:
    mark = "&" if "?" in path else "?"
    listed = ok(me.ask("GET", f"{STORES}/{path}{mark}limit=100"))["data"]
    return [each["id"] for each in listed]
