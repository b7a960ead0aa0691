"""`keys`, `seal` and `tenants`: access to a service, and the separate data of its tenants."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from ...engine.files import make_folder
from ...errors import NotFound
from ...memory import access
from ...memory.access import Key, Role, TenantId, issued, tenant_id
from ...memory.rows import rendered
from ...operations.files.seal import SealFile
from ...recall.text import clean
from ...settings import duration
from .. import output as out, target as o
from ..place import Backend, backend_of, now, require_usable, tenant_of, user
from ..program import command, group

HEADINGS = ("ID", "NAME", "TENANT", "ROLE", "PROJECTS", "AGENTS", "CREATED", "STATE")
KEY = (
    "id name tenant role projects=projects.names agents=agents.names coordinates created_at "
    "revoked_at"
)
ROLES = tuple(role.value for role in Role)

_FILES = o.setting_options("db_path", "keys_file")


@group()
def keys() -> None:
    """Create, list, rotate and revoke the keys of callers.

    The first key closes the service: every request then needs one. A change takes effect
    with the next request, without a restart. The keys are in a file next to the database,
    and each change adds a line to the audit file there. In PostgreSQL both are tables, and
    a change takes effect within a second.
    """


@command(
    *_FILES,
    o.option("--name", required=True, help="A name that says what the key is for."),
    o.option("--role", type=click.Choice(ROLES), required=True, help="What the key may do."),
    o.TENANT,
    o.option("--project", "projects", metavar="PATTERN", multiple=True, default=("*",),
             help="A project that the key may use, such as billing or billing-*; may be repeated. "
             "[default: *]"),
    o.option("--agent", "agents", metavar="PATTERN", multiple=True,
             help="An agent that the key may act as, such as coder or team-*; may be repeated. "
             "[default: none]"),
    o.flag("--coordinator", "coordinates",
           help="Let the key create intents and assign their coordinators. An admin key always "
           "may."),
    o.json_option(help="Print the key with its record, as JSON."),
    of=keys,
)  # fmt: skip
def create(name: str, role: str, tenant: str | None, **params: Any) -> None:
    """Create a key, and print it once: only a digest is stored.

    \b
    Standard output is the key alone, so you can assign it:
    KEY=$(agentops-memory keys create --name ci --role writer)
    """
    patterns = access.patterns(tuple(map(clean, params["projects"])))
    key, token = issued(
        name, tenant_of(tenant), Role(role), patterns, now(),
        agents=access.agent_patterns(params["agents"]), coordinates=params["coordinates"],
    )  # fmt: skip
    backend = backend_of(params)
    backend.prepare()
    if backend.keys.are_lost():
        out.say("The keys created earlier are lost; none of them works any more.")
    is_first = backend.keys.create(key, at=now(), by=user())
    out.say(f"Key {key.id} ({key.name}) is shown only once.")
    if is_first:
        out.say("This is the first key: from now on every request needs a key.")
    out.print_result({**_fields(key), "key": token}, token)


@command(
    *_FILES, o.flag("--all", "with_revoked", help="Include revoked keys."),
    o.json_option(help="Print a JSON array."), of=keys,
)  # fmt: skip
def list_(with_revoked: bool, **files: str | None) -> None:
    """List the keys, without their secrets."""
    backend = backend_of(files)
    ring = backend.keys.ring()
    backend.keys.require_kept(ring)
    if not ring.was_ever_used:
        out.say("No key has been created.")
    every = ring.keys.values()
    rows = [_fields(key) for key in every if with_revoked or key.revoked_at is None]
    out.print_records(rows, HEADINGS, _row)


@command(*_FILES, o.argument("id"), of=keys)
def revoke(id: str, **files: str | None) -> None:  # noqa: A002 - named in the help
    """Revoke the key with this ID, from the next request on."""
    key = backend_of(files).keys.revoke(access.KeyId(id), at=now(), by=user())
    click.echo(f"Key {key.id} ({key.name}) is revoked.")


@command(
    *_FILES, o.argument("id"),
    o.option("--keep-old", metavar="DURATION", default="0", callback=o.parsed_by(duration),
             help="How long the old secret keeps working, such as 1h. [default: 0, not at all]"),
    of=keys,
)  # fmt: skip
def rotate(id: str, keep_old: timedelta, **files: str | None) -> None:  # noqa: A002 - as above
    """Give the key with this ID a new secret, and print it once."""
    at = now()
    key, token = backend_of(files).keys.rotate(access.KeyId(id), keep_old, at=at, by=user())
    end = f"works until {rendered(at + keep_old)}" if keep_old else "no longer works"
    out.say(f"Key {key.id} ({key.name}) has a new secret, shown only once. The old one {end}.")
    click.echo(token)


@command(
    *_FILES,
    o.flag("--open", "is_confirmed", help="Confirm that the service is to be open to everyone."),
    of=keys,
)  # fmt: skip
def reset(is_confirmed: bool, **files: str | None) -> None:
    """Delete all keys, and open the service to everyone again.

    Revoked and lost keys go, too, as if none had ever been created. The service is then open
    where that is allowed: on a loopback address, or with MEMORY_AUTH=none.
    """
    if not is_confirmed:
        raise click.UsageError(
            "This deletes all keys and opens the service to callers without a key. To confirm, "
            "add --open."
        )
    count = backend_of(files).keys.reset(at=now(), by=user())
    click.echo(f"Deleted {out.counted(count, 'key')}; no key is left.")


def _fields(key: Key) -> dict[str, object]:
    ends = [secret.until for secret in key.secrets if secret.until is not None]
    old = rendered(max(ends)) if ends and max(ends) > now() else None
    return out.parts(key, KEY) | {"old_secret_until": old}


def _row(key: Mapping[str, Any]) -> tuple[str, ...]:
    texts = out.cells(key)
    state = "works"
    if key["revoked_at"]:
        state = f"revoked {texts['revoked_at']}"
    elif key["old_secret_until"]:
        state = f"works; the old secret ends {texts['old_secret_until']}"
    fields = (key[name] for name in ("id", "name", "tenant", "role"))
    projects, agents = (",".join(key[name]) for name in ("projects", "agents"))
    if key["coordinates"]:
        agents += " (coordinator)"
    return (*fields, projects, agents.strip(), str(texts["created_at"]), state)


@group()
def seal() -> None:
    """Manage the keys that encrypt confidential values.

    They are in a file next to the database, created with the first such value. Without the
    file these values cannot be read: keep a copy, as `backup` does.
    """


@command(*o.setting_options("db_path", "seal_file"), o.json_option(), of=seal)
def rotate_seal(**files: str | None) -> None:
    """Encrypt new values with a new key, even in a running service.

    Older keys stay in the file, to decrypt what they have encrypted. An entry gets the new
    key with its next change.
    """
    backend = backend_of(files)
    path = backend.settings.seal_file
    make_folder(path.parent)
    file = SealFile(path, now)
    key = file.rotate(lambda id_: backend.audit(access.OPERATOR, "seal.rotated", key=id_))
    count = len(file.keys())
    sentence = f"The key {key} encrypts from now on; {path} has {out.counted(count, 'key')}."
    out.print_result({"key": key, "keys": count}, sentence)


TENANT_HEADINGS = ("TENANT", "BYTES", "OBSERVATIONS", "SESSIONS", "STORES", "KEYS")
COUNTS = ("observations", "sessions", "stores")

_NAME = o.argument("name")


@group()
def tenants() -> None:
    """Create, list and erase tenants, each with its own database.

    A service may be running. Creating and erasing a tenant adds a line to the audit file.
    `export --tenant NAME` exports one.
    """


@command(*_FILES, _NAME, of=tenants)
def create_tenant(name: str, **files: str | None) -> None:
    """Create the database of the tenant NAME."""
    tenant, backend = tenant_id(name), backend_of(files)
    backend.create(tenant)
    click.echo(f"The tenant {tenant} has its database: {backend.name_of(tenant)}.")


@command(*_FILES, o.json_option(), of=tenants)
def list_tenants(**files: str | None) -> None:
    """List the tenants, what each stores, and its keys.

    Exits with 1 if a database cannot be read.
    """
    backend = backend_of(files)
    keyed = {key.tenant for key in backend.keys.ring().keys.values() if not key.revoked_at}
    tenants = dict.fromkeys([*backend.tenants(), *sorted(keyed)])
    rows = [_tenant(tenant, backend) for tenant in tenants]
    out.print_records(rows, TENANT_HEADINGS, _tenant_row)
    unread = [it["tenant"] for it in rows if it["bytes"] and it["observations"] is None]
    for tenant in unread:
        out.say(f"agentops-memory: the database of the tenant {tenant} cannot be read.")
    sys.exit(1 if unread else 0)


@command(*_FILES, _NAME, *o.CAREFUL, of=tenants)
def erase(name: str, dry_run: bool, **files: str | None) -> None:
    """Erase the tenant NAME permanently.

    Its keys are revoked, then its database is removed. Files are removed, not overwritten:
    backups, and what the disk still holds of the files, are beyond the reach of this program.
    """
    tenant, backend = tenant_id(name), backend_of(files)
    paths = backend.parts_of(tenant)
    plan = _tenant(tenant, backend) | {"files": paths}
    if not paths and not plan["keys"]:
        raise NotFound(f"There is no tenant {tenant}.")
    if not dry_run:
        out.confirm(f"Really erase the tenant {tenant}, {_counts(plan)}?")
        # The keys first: if one cannot be revoked, nothing is changed.
        keys = backend.keys.revoke_all(tenant, at=now(), by=user())
        counts = {name: plan[name] for name in (*COUNTS, "bytes")}
        plan |= {"keys": out.key_names(keys), "files": backend.erase(tenant, **counts)}
    sentence = f"{'It would erase' if dry_run else 'Erased'} the tenant {tenant}: {_counts(plan)}."
    out.print_result({**plan, "dry_run": dry_run}, sentence)


@command(*_FILES, _NAME, of=tenants)
def rewrite(name: str, **files: str | None) -> None:
    """Rewrite the tables of the tenant NAME without erased data.

    For PostgreSQL only (VACUUM FULL). The tenant's requests wait meanwhile, and the disk needs
    room for a second copy of its largest table. Refused while an old transaction may still see
    erased data.
    """
    backend, tenant = backend_of(files), tenant_id(name)
    require_usable(backend, tenant)
    backend.rewrite(tenant)
    click.echo(f"No erased data is left in {backend.name_of(tenant)}.")


def _tenant(tenant: TenantId, backend: Backend) -> dict[str, Any]:
    counts = backend.counted(tenant)
    known = out.parts(counts, "bytes=size observations=memories sessions stores") if counts else {}
    keys = out.key_names(backend.keys.ring().working(tenant))
    return {"tenant": tenant, **dict.fromkeys(("bytes", *COUNTS)), **known, "keys": keys}


def _tenant_row(tenant: Mapping[str, Any]) -> list[str]:
    numbers = (tenant[name] for name in ("bytes", *COUNTS))
    keys = ", ".join(f"{key['name']} ({key['id']})" for key in tenant["keys"])
    return [tenant["tenant"], *("-" if it is None else str(it) for it in numbers), keys]


def _counts(plan: Mapping[str, Any]) -> str:
    counts = [f"{'?' if plan[name] is None else plan[name]} {name}" for name in COUNTS]
    return ", ".join([*counts, f"{len(plan['keys'])} keys", f"{len(plan['files'])} files"])
