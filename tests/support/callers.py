"""Callers with keys of their own, as an operator would make them."""

import json
from pathlib import Path
from typing import Any

import httpx

from agentops_memory.memory.access import (
    KeyId,
    KeyRegistry,
    Role,
    TenantId,
    agent_patterns,
    issued,
    patterns,
)
from agentops_memory.operations.files.keys import KeyFile
from agentops_memory.postgresql.tenants import PostgresKeys

from .engines import DATABASE_URL, is_postgresql, rows, running, storage_at
from .process import until
from .service import PLAIN, START, Service

OPERATOR = {"user": "tester"}


def key_file(path: Path) -> KeyRegistry:
    """The keys of the service whose database is at the path."""
    if is_postgresql():
        return PostgresKeys(storage_at(path)[DATABASE_URL])
    return KeyFile(Path(f"{path}.keys"), Path(f"{path}.audit"))


def made_key(
    path: Path, role: str = "admin", tenant: str = "default", projects: tuple[str, ...] = ("*",),
    **rights: Any,
) -> str:  # fmt: skip
    """A new key of the service whose database is at the path, as a caller sends it."""
    token = made_in(key_file(path), role, tenant, projects, **rights)
    _until_heard(path, token, works=True)
    return token


def made_in(
    registry: KeyRegistry, role: str, tenant: str, projects: tuple[str, ...], *,
    agents: tuple[str, ...] = (), coordinates: bool = False,
) -> str:  # fmt: skip
    """A new key, which a service on PostgreSQL knows within a second."""
    key, token = issued(
        f"{role} of {tenant}", TenantId(tenant), Role(role), patterns(projects), START,
        agents=agent_patterns(agents), coordinates=coordinates,
    )  # fmt: skip
    registry.create(key, at=START, by=OPERATOR)
    return token


def revoke(path: Path, token: str) -> None:
    """End a key."""
    key_file(path).revoke(KeyId(token.split("_")[1]), at=START, by=OPERATOR)
    _until_heard(path, token, works=False)


def heard(path: Path) -> None:
    """Services know of all changes of keys so far."""
    if is_postgresql():
        made_key(path)  # which they hear of last


def calling(service: Service | str, token: str | None) -> httpx.Client:
    """A client that brings the key; it takes as long as a test does."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    url = service if isinstance(service, str) else service.url
    return httpx.Client(base_url=url, headers=headers, timeout=120, verify=PLAIN, trust_env=False)


def audit(path: Path) -> list[dict[str, object]]:
    """The lines of the audit."""
    if is_postgresql():
        lines = [it for (it,) in rows(path, "SELECT line FROM agentops.audit ORDER BY number")]
    else:
        lines = Path(f"{path}.audit").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _until_heard(path: Path, token: str, *, works: bool) -> None:
    """On PostgreSQL a change of keys holds within a second: wait until it does."""
    for url in running(path) if is_postgresql() else ():
        with calling(url, None) as nobody, calling(url, token) as somebody:
            until(lambda: _is_let_in(somebody) is works and not _is_let_in(nobody))


def _is_let_in(http: httpx.Client) -> bool:
    return http.post("/sessions").status_code != 401  # which no rate counts
