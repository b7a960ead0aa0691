"""What a request of OpenIntent says: who asks, of which version, filters, pages, what is to be."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from ..errors import BadFields, Denied, Invalid, Refusal
from ..http.bodies import Bodies, present
from ..http.endpoint import current_caller
from ..http.faults import bad_fields, said_of
from ..http.paging import instant
from ..http.protocol import Parameter
from ..http.refusals import NoPath
from ..http.requests import Query, parameter, query_of
from ..memory.model.access import Caller, Role
from ..memory.model.agent_events import EventFilter
from ..memory.model.agent_memory import (
    KEPT,
    Access,
    AgentChange,
    AgentDraft,
    AgentEntry,
    AgentFilter,
    AgentSpace,
    BatchItem,
    Eyes,
    Handling,
    Labels,
    Place,
    Priority,
    Sensitivity,
    Tier,
)
from ..memory.model.agents import NOT_YOUR_AGENT, AgentId, agent_id
from ..memory.model.agents import asking as asking_agent
from ..memory.model.intents import IntentId
from .bodies import (
    AgentBatchBody,
    AgentBatchItem,
    AgentChangeBody,
    AgentEntryBody,
    AgentPutBody,
    Key,
    NamespaceChangeBody,
    NamespaceName,
)
from .rules.binding import ttl_of
from .rules.namespaces import PermissionsChange
from .rules.rules import AtItem
from .wire import entry

IDENTITY = (
    "id",
    "agent_id",
    "namespace",
    "key",
    "memory_type",
    "scope",
    "created_by",
    "created_at",
)


def draft(given: AgentEntryBody, eyes: Eyes) -> AgentDraft:
    """The entry that is to be made; Denied for one of another agent."""
    return AgentDraft(
        place=_place(given, eyes),
        value=given.value,
        handling=Handling(
            tags=tuple(dict.fromkeys(given.tags)),
            is_pinned=given.pinned,
            priority=Priority[given.priority.upper()],
            sensitivity=_sensitivity(given.sensitivity),
            curated_by=given.curated_by,
            ttl=given.ttl,
            expires_at=_instant_if_any(given.expires_at),
        ),
        labels=Labels(task=given.scope.task_id, intent=given.scope.intent_id),
    )


def kept(given: AgentPutBody, place: Place) -> AgentDraft:
    """What a place is to hold."""
    ttl = None if given.ttl_seconds is None else ttl_of(given.ttl_seconds)
    return AgentDraft(place=place, value=given.value, handling=Handling(ttl=ttl))


def items(given: AgentBatchBody, eyes: Eyes) -> list[BatchItem]:
    """The items of a batch; AtItem for the first that asks for what is another agent's."""
    found = []
    for number, each in enumerate(given.entries):
        try:
            found.append(item(each, eyes))
        except Refusal as refusal:
            raise AtItem(number, refusal) from refusal
    return found


def item(given: AgentBatchItem, eyes: Eyes) -> BatchItem:
    """An item of a batch; with a version, what it names is changed."""
    if given.version is None:
        return BatchItem(draft=draft(given, eyes))
    named = given.model_fields_set
    change = AgentChange(
        value=given.value,
        tags=tuple(dict.fromkeys(given.tags)) if "tags" in named else None,
        is_pinned=given.pinned if "pinned" in named else None,
        priority=Priority[given.priority.upper()] if "priority" in named else None,
        sensitivity=KEPT if given.sensitivity is None else Sensitivity(given.sensitivity),
        curated_by=KEPT if given.curated_by is None else given.curated_by,
        ttl=KEPT if given.ttl is None else given.ttl,
        expires_at=KEPT if given.expires_at is None else _instant_if_any(given.expires_at),
        claims=lambda of: _require_same(scope, of),
    )
    place = AgentDraft(place=_place(given, eyes), value="{}")
    scope = {} if "scope" not in named else {"scope": present(given.scope.model_dump())}
    return BatchItem(draft=place, change=change, version=given.version)


def change(given: AgentChangeBody, version: int) -> AgentChange:
    """The change of an entry that is at this version; `null` takes away what may be absent."""
    claims = present(given.model_extra or {})
    claimed = claims.pop("version", version)
    if type(claimed) is not int or claimed != version:  # a boolean equals a number
        raise BadFields([("version", "must be that of the header If-Match")])

    def said(name: str) -> Any:
        return getattr(given, name) if name in given.model_fields_set else KEPT

    sensitivity, expires_at = said("sensitivity"), said("expires_at")
    return AgentChange(
        value=given.value,
        tags=None if given.tags is None else tuple(dict.fromkeys(given.tags)),
        is_pinned=given.pinned,
        priority=None if given.priority is None else Priority[given.priority.upper()],
        sensitivity=KEPT if sensitivity is KEPT else _sensitivity(sensitivity),
        curated_by=said("curated_by"),
        ttl=said("ttl"),
        expires_at=KEPT if expires_at is KEPT else _instant_if_any(expires_at),
        claims=lambda of: _require_same(claims, of),
    )


def permissions(given: NamespaceChangeBody) -> PermissionsChange:
    default, allow = given.permissions.default, given.permissions.allow
    return PermissionsChange(
        default=None if default is None else Access[default.upper()],
        allow=None
        if allow is None
        else {AgentId(each.agent): Access[each.access.upper()] for each in allow},
    )


def _place(given: AgentEntryBody, eyes: Eyes) -> Place:
    if given.agent_id is not None and given.agent_id != eyes.agent:
        raise Denied(NOT_YOUR_AGENT)
    tier = Tier(given.memory_type)
    owner = eyes.agent if tier.has_owner else None
    space = AgentSpace(tier=tier, agent=owner, namespace=given.namespace)
    return Place(space=space, key=given.key)


def _require_same(claims: Mapping[str, object], of: AgentEntry) -> None:
    """Raise BadFields for what names another entry than this one."""
    same = entry(of)
    wrong = [name for name in IDENTITY if name in claims and claims[name] != same[name]]
    if wrong:
        raise BadFields([(name, "cannot be changed") for name in wrong])


def _sensitivity(said: str | None) -> Sensitivity | None:
    return None if said is None else Sensitivity(said)


def _instant_if_any(text: str | None) -> datetime | None:
    return None if text is None else instant(text)


BODIES = Bodies(refusal=bad_fields, limit=1024 * 1024)
BATCHES = Bodies(refusal=bad_fields)


SHOWN, MOST_SHOWN = 100, 1_000  # entries of a page
FOUND, MOST_FOUND = 10, 100  # entries of a search
MOST_TAGS = 100  # of a condition
ANY = "*"  # at the end of a namespace: whatever follows
AGENT = "X-Agent-ID"

_NEW = {"namespace": TypeAdapter[str](NamespaceName), "key": TypeAdapter[str](Key)}
_NAMES = re.compile(rb"/namespaces/|/agents/[^/]*/memory/")  # what follows are names
_MATCH = re.compile(r'(?:W/)?"(\d{1,18})"|(\d{1,18})', re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
_MOST = 18  # digits that are read


class VersionRequired(Refusal):
    """A change must say of which version it is."""

    code = "version_required"

    def __init__(self) -> None:
        super().__init__("The header If-Match must say which version is to be changed.")


def require_agent(request: Request, caller: Caller) -> AgentId:
    """The agent that asks; Denied or Invalid if nobody may ask so.

    A path is cut before its escapes are read: an escaped slash is no cut.
    """
    raw: bytes = request.scope["raw_path"]
    names = _NAMES.search(raw)
    if b"%2f" in raw[: names.end() if names else None].lower():
        raise NoPath
    return asking_agent(caller, request.headers.get(AGENT, "").strip())


def eyes(request: Request, caller: Caller | None = None) -> Eyes:
    """Whose eyes look, by what the keys say now."""
    caller = caller or current_caller(request)
    agent = require_agent(request, caller)
    return Eyes(agent=agent, is_admin=caller.role.includes(Role.ADMIN))


def asking(request: Request) -> tuple[Caller, Eyes]:
    """Who asks, and by whose eyes, by what the keys say now."""
    caller = current_caller(request)
    return caller, eyes(request, caller)


async def asked(request: Request, bodies: Bodies = BODIES) -> tuple[Caller, Eyes]:
    """Who asks once the body was read, under the request's idempotency key, and by whose eyes."""
    caller = await bodies.caller(request, holder=eyes(request).agent)
    return caller, eyes(request, caller)


def agent_in_path(request: Request) -> AgentId:
    return agent_id(request.path_params["agent"])


def require_own(agent: AgentId, eyes: Eyes) -> None:
    """Raise Denied for an agent that is not the one who asks."""
    if agent != eyes.agent:
        raise Denied(NOT_YOUR_AGENT)


def namespace_in_path(request: Request) -> str:
    """The last part of the path, in which an escaped slash is a letter; NoPath for more parts."""
    (name,) = names_in_path(request, 1)
    return name


def names_in_path(request: Request, count: int) -> list[str]:
    """The last parts of a path, which are names; an escaped slash is a letter of one."""
    raw: bytes = request.scope["raw_path"]
    found = _NAMES.search(raw)
    parts = raw[found.end() :].split(b"/") if found else []
    if len(parts) != count or not all(parts):
        raise NoPath
    try:
        return [unquote(part.decode("ascii"), errors="strict") for part in parts]
    except UnicodeDecodeError as error:
        raise NoPath from error


def own_place(request: Request, eyes: Eyes) -> Place:
    """The place in the path, in the episodic memory of the agent that asks."""
    namespace, key = names_in_path(request, 2)
    space = AgentSpace(tier=Tier.EPISODIC, agent=eyes.agent, namespace=namespace)
    return Place(space=space, key=key)


def has_key(request: Request) -> bool:
    """Whether the path names a key below the namespace: an escaped slash looks like one."""
    return b"/" in _NAMES.split(request.scope["raw_path"], maxsplit=1)[-1]


def new_namespace(request: Request) -> str:
    """The namespace in the path, which may be one that is made."""
    name = namespace_in_path(request)
    require_names(namespace=name)
    return name


def require_names(**names: str) -> None:
    """Raise BadFields for a namespace, or a key, that can be none."""
    faults = []
    for name, text in names.items():
        try:
            _NEW[name].validate_python(text)
        except ValidationError as error:
            faults += [(name, said_of(fault)) for fault in error.errors()]
    if faults:
        raise BadFields(faults)


def version(request: Request) -> int:
    """The version that is to be changed; VersionRequired if none is said."""
    said = version_if_any(request)
    if said is None:
        raise VersionRequired
    return said


def version_if_any(request: Request) -> int | None:
    said = request.headers.get("if-match", "").strip()
    if not said:
        return None
    found = _MATCH.fullmatch(said)
    if found is None:
        raise Invalid('The header If-Match must be one version, such as "3".')
    return int(found[1] or found[2])


def page(request: Request) -> tuple[int, int]:
    """How many are asked for, at most 1,000, and after how many."""
    query = query_of(request)
    limit, offset = _number(query, "limit", 1), _number(query, "offset", 0)
    return min(SHOWN if limit is None else limit, MOST_SHOWN), offset or 0


def most(request: Request) -> int:
    """How many are to be deleted at most."""
    limit = _number(query_of(request), "limit", 1)
    return MOST_SHOWN if limit is None else min(limit, MOST_SHOWN)


def filter_(request: Request, agent: AgentId | None = None) -> AgentFilter:
    """Which entries are asked for; those of an agent that the path names, if it names one."""
    query, faults = query_of(request), list[tuple[str, str]]()
    namespace = parameter(query, "namespace")
    tier, pinned, named = (parameter(query, it) for it in ("memory_type", "pinned", "agent_id"))
    if tier is not None and tier not in [*Tier]:
        faults.append(("memory_type", f"must be one of {', '.join(Tier)}"))
    if pinned not in (None, "true", "false"):
        faults.append(("pinned", "must be true or false"))
    times = {name: _instant(query, name, faults) for name in ("updated_after", "updated_before")}
    every_tag, any_tag = (_tags(query, name, faults) for name in ("tags", "tags_any"))
    if faults:
        raise BadFields(faults)
    is_prefix = bool(namespace and namespace.endswith(ANY))
    return AgentFilter(
        agent=agent or (None if named is None else AgentId(named)),
        namespace=namespace.removesuffix(ANY) if namespace and is_prefix else namespace,
        is_prefix=is_prefix,
        key=parameter(query, "key"),
        tier=None if tier is None else Tier(tier),
        every_tag=every_tag,
        any_tag=any_tag,
        is_pinned=None if pinned is None else pinned == "true",
        labels=Labels(
            task=parameter(query, "scope.task_id"), intent=parameter(query, "scope.intent_id")
        ),
        **times,
    )


def words(request: Request) -> str:
    """The text that is searched for."""
    text = parameter(query_of(request), "q")
    if text is None:
        raise BadFields([("q", "is required")])
    return text


def hits(request: Request) -> int:
    """How many are to be found."""
    limit = _number(query_of(request), "limit", 1)
    return FOUND if limit is None else min(limit, MOST_FOUND)


def search_filter(request: Request) -> AgentFilter:
    """Among which entries is searched; working memory is none of them."""
    asked = filter_(request)
    if asked.tier is Tier.WORKING:
        raise BadFields([("memory_type", "must be episodic or semantic: working is not searched")])
    return AgentFilter(
        namespace=asked.namespace,
        is_prefix=asked.is_prefix,
        tier=asked.tier,
        every_tag=asked.every_tag,
        any_tag=asked.any_tag,
    )


def events(
    request: Request, *, agent: AgentId | None = None, intent: IntentId | None = None
) -> EventFilter:
    """Which events of an agent, or of an intent, are asked for."""
    query, faults = query_of(request), list[tuple[str, str]]()
    since = _instant(query, "since", faults)
    if faults:
        raise BadFields(faults)
    return EventFilter(
        agent=agent,
        intent=intent,
        type=parameter(query, "event_type"),
        since=since,
        after=_number(query, "after", 0),
    )


def _tags(query: Query, name: str, faults: list[tuple[str, str]]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(filter(None, (parameter(query, name) or "").split(","))))
    if len(found) > MOST_TAGS:
        faults.append((name, f"has at most {MOST_TAGS} tags"))
    return found


def _number(query: Query, name: str, least: int) -> int | None:
    text = parameter(query, name)
    if text is None:
        return None
    number = int(text.lstrip("0")[:_MOST] or 0) if _NUMBER.fullmatch(text) else -1
    if number < least:
        raise BadFields([(name, f"must be a whole number, {least} or more")])
    return number


def _instant(query: Query, name: str, faults: list[tuple[str, str]]) -> datetime | None:
    text = parameter(query, name)
    if text is None:
        return None
    at = instant(text)
    if at is None:
        faults.append((name, "must be an RFC 3339 time"))
    return at


PREFIX = "/api/v1"

MATCH = Parameter(name="If-Match", help='The version that it must have, such as "3".')
MUST_MATCH = replace(MATCH, required=True)
TAG = {"ETag": "The version, as If-Match takes it."}
LIMIT = Parameter(
    name="limit",
    kind="count",
    help=f"How many, 100 unless told; at most {MOST_SHOWN:,}.",
    is_row_count=True,
)
PAGE = (LIMIT, Parameter(name="offset", kind="integer", help="After how many; 0 unless told."))
EVENTS = (
    Parameter(name="event_type", help="Of this type alone."),
    Parameter(name="since", kind="instant", help="Later than this."),
    Parameter(name="after", kind="integer", help="After this `sequence`, oldest first."),
    LIMIT,
)
