"""Semantic namespaces and their permissions: list, read, change (§2.3)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, PlainSerializer, model_validator
from starlette.requests import Request
from starlette.responses import Response

from ..engine.engine import Transaction
from ..errors import Denied, NotFound, required
from ..http.bodies import Body, answered, fault_of
from ..http.protocol import Operation
from ..light import replace
from ..memory import agent_memory
from ..memory.agent_memory import NAMESPACES as KNOWN, Access, Permissions, Viewer
from ..memory.idempotency import once
from ..memory.memory import live
from ..memory.redactor import Redactor, require_room
from ..memory.rows import reads
from ..memory.saves import Written
from ..memory.table import Attributes, Sql
from ..recall.recall import NO_NAMESPACE
from ..record import shape
from ..telemetry import annotate
from . import api
from .api import MAX_NAME, PAGE, Agent, FullRecord, Stale, Time, names_in_path, route
from .entries import MEMORY

NAMESPACES = f"{MEMORY}/namespaces"
MAX_ALLOWED = 1_000  # agents of a namespace's permissions
AccessName = Literal["none", "read", "write", "admin"]


class AllowedAgent(Body):
    """The access of one agent to a namespace."""

    agent: Agent
    access: AccessName


class PermissionsBody(Body):
    """Permissions to set; `allow` replaces the whole list, and absent fields stay."""

    default: AccessName | None = None
    allow: Annotated[list[AllowedAgent], Field(max_length=MAX_ALLOWED)] | None = None

    @model_validator(mode="after")
    def _named_once(self) -> "PermissionsBody":
        named = [each.agent for each in self.allow or ()]
        if len(set(named)) < len(named):
            raise fault_of("allow", "must name each agent once")
        return self

    def changed(self, before: Permissions) -> Permissions:
        default, allow = before.default, before.allow
        if self.default is not None:
            default = Access[self.default.upper()]
        if self.allow is not None:
            allow = {it.agent: Access[it.access.upper()] for it in self.allow}
        return Permissions(default=default, allow=allow)


class NamespaceChangeBody(Body):
    """PATCH /api/v1/memory/namespaces/{namespace}."""

    permissions: PermissionsBody


class NamespacePermissions(BaseModel):
    """The permissions of a namespace: a default, and the access of single agents."""

    default: AccessName
    allow: list[AllowedAgent]


def _shown(stored: Permissions) -> NamespacePermissions:
    allow = [
        AllowedAgent.model_construct(agent=agent, access=_name(level))
        for agent, level in stored.allow.items()
    ]
    return NamespacePermissions.model_construct(default=_name(stored.default), allow=allow)


def _name(level: Access) -> Any:
    return level.name.lower()


CallersAccess = Annotated[Access, PlainSerializer(_name, return_type=AccessName)]


class Namespace(FullRecord):
    """A semantic namespace, with the access that the calling agent has."""

    is_tagged: ClassVar = True

    namespace: str
    permissions: Annotated[Permissions, PlainSerializer(_shown, return_type=NamespacePermissions)]
    access: CallersAccess
    version: int  # of the permissions; 0 until they are set
    entry_count: int
    total_size_kb: int
    created_at: Time
    updated_at: Time

    @property
    def attributes(self) -> Attributes:
        return {"memory.namespace": self.namespace}


ListedNamespace = shape(
    "ListedNamespace", "A namespace in a list.",
    namespace=str, access=CallersAccess, entry_count=int, updated_at=Time,
)  # fmt: skip
NamespaceList = shape(
    "NamespaceList", "The namespaces that the agent may read.",
    namespaces=[ListedNamespace], total=int, limit=int, offset=int,
)  # fmt: skip


def operations(serving: api.Serving) -> Sequence[Operation]:
    engine = serving.engine

    async def list_(request: Request, limit: int, offset: int) -> Response:
        caller, viewer = api.identify(request)
        total, listed = await engine.read(caller, _page, viewer, limit, offset)
        annotate({"memory.result_count": len(listed)})
        rows = [each.model_dump(include={*ListedNamespace.model_fields}) for each in listed]
        return answered({"namespaces": rows, "total": total, "limit": limit, "offset": offset})

    async def get(request: Request) -> Response:
        (name,) = names_in_path(request, 1)
        caller, viewer = api.identify(request)
        clean = Redactor(serving.rules(caller)).text(name, MAX_NAME)
        return api.answered(await engine.read(caller, _known, viewer, clean))

    async def update(request: Request) -> Response:
        (name,) = names_in_path(request, 1)
        api.require_names(namespace=name)
        version = api.version(request)
        body = (await api.BODIES.read(request, NamespaceChangeBody)).permissions
        caller, viewer = await api.identify_writer(request)
        named = [it.agent for it in body.allow or ()]
        redactor = api.redactor_for(serving.rules, caller, viewer.agent, *named)
        args = redactor.text(name, MAX_NAME), body, version
        await serving.audit_change(caller, viewer, "namespace.permitted", _told, *args)
        made = await engine.write(caller, _PERMIT, viewer, *args)
        return api.answered(Written(value=made, redacted=redactor.count))

    one = f"{NAMESPACES}/{{namespace:path}}"
    return (
        route("GET", NAMESPACES, "list_namespaces",
           "Semantic namespaces that the agent may read, by name.",
           list_, NamespaceList, query=PAGE),
        route("PATCH", one, "update_namespace", "Set the permissions of a semantic namespace.",
           update, Namespace, body=NamespaceChangeBody, sends=(api.MATCH,), refusals=(404, 409)),
        route("GET", one, "get_namespace", "One semantic namespace, with its permissions.",
           get, Namespace, refusals=(404,)),
    )  # fmt: skip


def _page(
    tx: Transaction, viewer: Viewer, limit: int, offset: int
) -> tuple[int, Sequence[Namespace]]:
    total = tx[Sql].number(
        f"SELECT count(*) FROM {KNOWN} WHERE {agent_memory.access_in('k.name')} >= {Access.READ:d}",
        **agent_memory.seen(viewer),
    )  # fmt: skip
    return total, readable(tx, viewer, limit, offset)


def _known(tx: Transaction, viewer: Viewer, name: str, *_: object) -> Namespace:
    return required(_get(tx, viewer, name), NO_NAMESPACE)


def _planned(
    tx: Transaction, viewer: Viewer, name: str, body: PermissionsBody, version: int | None
) -> Permissions:
    """Return the permissions after the change.

    Raises Denied unless the viewer administers the namespace. Only administrators of the service
    may set permissions of a namespace that does not exist yet.
    """
    namespace = _get(tx, viewer, name)
    if namespace is None and not viewer.is_admin:
        raise NotFound(NO_NAMESPACE)
    if namespace is not None and namespace.access < Access.ADMIN:
        raise Denied("The agent does not administer this namespace.")
    if version is not None and version != (namespace.version if namespace else 0):
        if namespace is None:
            raise NotFound(NO_NAMESPACE)
        raise Stale(f"The namespace is at version {namespace.version}.", namespace)
    return body.changed(agent_memory.permissions(tx, name))


def _told(tx: Transaction, viewer: Viewer, name: str, *args: Any) -> Mapping[str, object]:
    """Return what to audit of a change of permissions, or raise the refusal."""
    after = _planned(tx, viewer, name, *args)
    allow = {agent: _name(access) for agent, access in after.allow.items()}
    return {"namespace": name, "default": _name(after.default), "allow": allow}


def _permit(
    tx: Transaction, viewer: Viewer, name: str, body: PermissionsBody, version: int | None
) -> Namespace:
    after = _planned(tx, viewer, name, body, version)
    require_room(tx)
    tx[Sql].run(
        """INSERT INTO namespaces (name, default_access, version, created_at, updated_at)
           VALUES (:name, :access, 1, :now, :now)
               ON CONFLICT (name) DO UPDATE
              SET default_access = :access, version = namespaces.version + 1,
                  updated_at = :now""",
        name=name, access=int(after.default),
    )  # fmt: skip
    tx[Sql].run("DELETE FROM namespace_access WHERE namespace = :name", name=name)
    tx[Sql].run_all(
        """INSERT INTO namespace_access (namespace, agent, access)
           VALUES (:name, :agent, :access)""",
        [
            {"name": name, "agent": agent, "access": int(access)}
            for agent, access in after.allow.items()
        ],
    )
    made = _known(tx, replace(viewer, is_admin=True), name)
    return made.model_copy(update={"access": after.of(viewer)})


_PERMIT = once(_permit, check=_known)


def _get(tx: Transaction, viewer: Viewer, name: str) -> Namespace | None:
    """Return the namespace, or None if it is empty or the viewer may not read it."""
    rows = readable(tx, viewer, 1, 0, "k.name = :name", name=name)
    if not rows:
        list(tx[Sql].intact([name], lambda it: agent_memory.permissions(tx, it)))  # damage is noted
    return rows[0] if rows else None


def readable(
    tx: Transaction, viewer: Viewer, limit: int, offset: int, which: str = "TRUE", **values: object
) -> list[Namespace]:
    """Return the namespaces that the viewer may read and that match a condition, by name."""
    rows = tx[Sql].run(
        f"""SELECT k.name, {agent_memory.access_in("k.name")} AS access,
                   max(v.version), max(v.created_at), max(v.updated_at),
                   count(m.id), {agent_memory.sum_of("a.size")},
                   min(m.created_at), max(m.updated_at)
              FROM {KNOWN}
              LEFT JOIN namespaces v ON v.name = k.name
              LEFT JOIN agent_spaces p ON p.namespace = k.name AND p.agent = ''
              LEFT JOIN memories m ON m.space_id = p.space_id AND {live("m")}
              LEFT JOIN agent_memories a ON a.memory_id = m.id
             WHERE {which} AND {agent_memory.access_in("k.name")} >= {Access.READ:d}
          GROUP BY k.name
          ORDER BY k.name
             LIMIT :limit OFFSET :offset""",
        limit=limit, offset=offset, **values, **agent_memory.seen(viewer),
    )  # fmt: skip

    def made(row: Any) -> Namespace:
        return Namespace.model_construct(
            **_listed(row), permissions=agent_memory.permissions(tx, row[0])
        )

    return list(tx[Sql].intact(rows.fetchall(), made))


@reads("namespaces")
def _listed(  # noqa: PLR0913, PLR0917 - one parameter per column
    name: str, access: Access, version: int | None, set_at: datetime | None,
    changed_at: datetime | None, entries: int, size: int, first: datetime | None,
    last: datetime | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "namespace": name, "access": access, "version": version or 0, "entry_count": entries,
        "total_size_kb": api.kilobytes(size), "created_at": min(filter(None, (set_at, first))),
        "updated_at": max(filter(None, (changed_at, last))),
    }  # fmt: skip
