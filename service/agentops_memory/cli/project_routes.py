"""The routes of a running service for its projects: what commands for operators use of them."""

import json
from datetime import timedelta
from typing import Any

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.contract.call import Call, given
from agentops_memory_client.contract.method import asking
from agentops_memory_client.contract.reading import Headers

LONGEST = timedelta(hours=1)  # until the answer to an erasure; a repeated one goes on


def _read(body: bytes, _: Headers) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(body)
    return fields


def erase(project: str, *, dry_run: bool = False) -> Call[dict[str, Any]]:
    return Call(
        operation="delete_project", method="DELETE", path=("projects", project), read=_read,
        query=given(hard=True, dry_run=dry_run), within=LONGEST,
    )  # fmt: skip


def plan_erasure(project: str) -> Call[dict[str, Any]]:
    """What the erasure of a project would remove; NotFound if there is no such project."""
    return erase(project, dry_run=True)


class ProjectRoutes(AsyncMemoryClient):
    """A client that also lists and erases projects."""

    plan_erasure = asking(plan_erasure)
    erase = asking(erase)

    async def list_projects(self) -> list[dict[str, object]]:
        """The projects, as `projects list` shows them but for when they changed."""
        names = (await self.stats()).projects
        counts = [await self.stats(name) for name in names]
        return [
            {
                "project": name,
                "observations": count.total_observations,
                "sessions": count.total_sessions,
                "changed_at": None,
            }
            for name, count in zip(names, counts, strict=True)
        ]
