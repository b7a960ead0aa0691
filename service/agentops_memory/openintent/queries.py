"""What a request says beside its body: who asks, of which version, filters, pages."""

import re
from datetime import datetime
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from ..errors import BadFields, Denied, Invalid, Refusal
from ..http.bodies import Bodies
from ..http.endpoint import current_caller
from ..http.faults import said_of
from ..http.paging import instant
from ..http.refusals import NoPath
from ..http.requests import Query, parameter, query_of
from ..memory.idempotency import IdempotentRequest
from ..memory.model.access import Caller, Role
from ..memory.model.agent_events import EventFilter
from ..memory.model.agent_memory import AgentFilter, AgentSpace, Eyes, Labels, Place, Tier
from ..memory.model.agents import NOT_YOUR_AGENT, AgentId, agent_id
from ..memory.model.agents import asking as asking_agent
from ..memory.model.intents import IntentId
from .bodies import Key, NamespaceName
from .drafts import BODIES

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


async def asked(
    request: Request, bodies: Bodies = BODIES
) -> tuple[Caller, Eyes, IdempotentRequest | None]:
    """Who asks once the body was read, by what the keys say now; under which idempotency key."""
    agent = eyes(request).agent
    caller, idempotency = await bodies.caller_and_idempotency(request, holder=agent)
    return caller, eyes(request, caller), idempotency


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
