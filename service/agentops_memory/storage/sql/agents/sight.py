"""SQL for what the agent that asks may see: its own, and namespaces with enough access."""

from typing import Any

from ....domain.model.agent_memory import Access, Eyes


def access_in(namespace: str) -> str:
    """The access of the asking agent, `:eyes`, in the namespace that a column names."""
    return f"""CASE WHEN :is_admin THEN {Access.ADMIN:d}
                    ELSE coalesce((SELECT n.access
                                     FROM namespace_access n
                                    WHERE n.namespace = {namespace} AND n.agent = :eyes),
                                  (SELECT n.default_access
                                     FROM namespaces n
                                    WHERE n.name = {namespace}),
                                  {Access.READ:d})
               END"""


READABLE = f"(p.agent = :eyes OR (p.agent = '' AND {access_in('p.namespace')} >= {Access.READ:d}))"
WRITABLE = f"(p.agent = :eyes OR (p.agent = '' AND {access_in('p.namespace')} >= {Access.WRITE:d}))"


def seen(eyes: Eyes) -> dict[str, Any]:
    """What these conditions name."""
    return {"eyes": eyes.agent, "is_admin": eyes.is_admin}
