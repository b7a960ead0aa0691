"""What bodies of OpenWOP may hold."""
# ruff: noqa: PLC0414

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from ...http.faults import fault_of
from ...memory.model.memory import MAX_SUPERSEDED, MAX_TTL
from ..api import BODIES as BODIES
from ..api import LONGEST_BODY as LONGEST_BODY
from ..refs import CAMEL as CAMEL
from ..refs import AgentName as AgentName
from ..refs import ContentText as ContentText
from ..refs import EntryName as EntryName
from ..refs import Exact as Exact
from ..refs import MemoryRefText as MemoryRefText
from ..refs import Node as Node
from ..refs import OwnName as OwnName
from ..refs import Printable as Printable
from ..refs import RunName as RunName
from ..refs import Tags as Tags
from ..refs import Workflow as Workflow
from ..refs import Zoned as Zoned
from ..refs import instant_text as instant_text


class RefEntryBody(BaseModel):
    """An entry to be put, in a run if it names one."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    content: ContentText
    tags: Tags = []
    expires_at: Zoned | None = None
    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_TTL)] | None = None
    supersedes: Annotated[list[EntryName], Field(max_length=MAX_SUPERSEDED)] = []
    id: OwnName | None = None
    run_id: RunName | None = None
    node_id: Node | None = None
    agent_id: AgentName | None = None

    @model_validator(mode="after")
    def _together(self) -> "RefEntryBody":
        if self.expires_at is not None and self.ttl_seconds is not None:
            raise fault_of("ttlSeconds", "and expiresAt exclude each other")
        for name, given in {"nodeId": self.node_id, "agentId": self.agent_id}.items():
            if given is not None and self.run_id is None:
                raise fault_of(name, "needs a runId")
        return self
