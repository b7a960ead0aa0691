"""What bodies of OpenIntent ask for, and what is wrong with them. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..errors import BadFields, Denied, Refusal
from ..http.bodies import Bodies, present
from ..http.faults import bad_fields
from ..http.paging import instant
from ..memory.model.agent_memory import (
    KEPT,
    Access,
    AgentChange,
    AgentDraft,
    AgentEntry,
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
from ..memory.model.agents import NOT_YOUR_AGENT, AgentId
from . import bodies as m
from .rules.lifetime import ttl_of
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


def draft(given: m.AgentEntryBody, eyes: Eyes) -> AgentDraft:
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
            expires_at=_instant(given.expires_at),
        ),
        labels=Labels(task=given.scope.task_id, intent=given.scope.intent_id),
    )


def kept(given: m.AgentPutBody, place: Place) -> AgentDraft:
    """What a place is to hold."""
    ttl = None if given.ttl_seconds is None else ttl_of(given.ttl_seconds)
    return AgentDraft(place=place, value=given.value, handling=Handling(ttl=ttl))


def items(given: m.AgentBatchBody, eyes: Eyes) -> list[BatchItem]:
    """The items of a batch; AtItem for the first that asks for what is another agent's."""
    found = []
    for number, each in enumerate(given.entries):
        try:
            found.append(item(each, eyes))
        except Refusal as refusal:
            raise AtItem(number, refusal) from refusal
    return found


def item(given: m.AgentBatchItem, eyes: Eyes) -> BatchItem:
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
        expires_at=KEPT if given.expires_at is None else _instant(given.expires_at),
        claims=lambda of: _require_same(scope, of),
    )
    place = AgentDraft(place=_place(given, eyes), value="{}")
    scope = {} if "scope" not in named else {"scope": present(given.scope.model_dump())}
    return BatchItem(draft=place, change=change, version=given.version)


def change(given: m.AgentChangeBody, version: int) -> AgentChange:
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
        expires_at=KEPT if expires_at is KEPT else _instant(expires_at),
        claims=lambda of: _require_same(claims, of),
    )


def permissions(given: m.NamespaceChangeBody) -> PermissionsChange:
    default, allow = given.permissions.default, given.permissions.allow
    return PermissionsChange(
        default=None if default is None else Access[default.upper()],
        allow=None
        if allow is None
        else {AgentId(each.agent): Access[each.access.upper()] for each in allow},
    )


def _place(given: m.AgentEntryBody, eyes: Eyes) -> Place:
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


def _instant(text: str | None) -> datetime | None:
    return None if text is None else instant(text)


BODIES = Bodies(refusal=bad_fields, limit=1024 * 1024)
BATCHES = Bodies(refusal=bad_fields)
