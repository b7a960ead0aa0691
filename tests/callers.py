"""Callers with keys of their own, as an operator would make them."""

import json
from pathlib import Path

import httpx

from agentops_memory.domain.model.access import KeyId, Role, TenantId, patterns
from agentops_memory.domain.model.agents import agent_patterns
from agentops_memory.domain.model.keys import issued
from agentops_memory.files.keys import KeyFile

from .service import PLAIN, START, Service

OPERATOR = {"user": "tester"}


def key_file(path: Path) -> KeyFile:
    """The keys of the service whose database is at the path."""
    return KeyFile(Path(f"{path}.keys"), Path(f"{path}.audit"))


def made_key(
    path: Path,
    role: str = "admin",
    tenant: str = "default",
    projects: tuple[str, ...] = ("*",),
    *,
    agents: tuple[str, ...] = (),
    coordinates: bool = False,
) -> str:
    """A new key of the service whose database is at the path, as a caller sends it."""
    name = f"{role} of {tenant}"
    spoken = agent_patterns(agents)
    key, token = issued(
        name,
        TenantId(tenant),
        Role(role),
        patterns(projects),
        START,
        agents=spoken,
        coordinates=coordinates,
    )
    key_file(path).create(key, at=START, by=OPERATOR)
    return token


def revoke(path: Path, token: str) -> None:
    """End a key."""
    key_file(path).revoke(KeyId(token.split("_")[1]), at=START, by=OPERATOR)


def calling(service: Service, token: str | None) -> httpx.Client:
    """A client that brings the key; it takes as long as a test does."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=service.url, headers=headers, timeout=30, verify=PLAIN)


def audit(path: Path) -> list[dict[str, object]]:
    """The lines of the audit."""
    return [json.loads(line) for line in Path(f"{path}.audit").read_text().splitlines()]
