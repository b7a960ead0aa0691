"""What bodies of runs may hold."""
# ruff: noqa: PLC0414

from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from ...http.faults import fault_of
from ...memory.redactor import LONGEST_ID as LONGEST_SECRET_ID
from ..api import BODIES as BODIES
from ..api import LONGEST_BODY as LONGEST_BODY
from ..fields import CAMEL as CAMEL
from ..fields import AgentName as AgentName
from ..fields import ContentText as ContentText
from ..fields import EntryName as EntryName
from ..fields import Exact as Exact
from ..fields import MemoryRefText as MemoryRefText
from ..fields import Node as Node
from ..fields import OwnName as OwnName
from ..fields import Printable as Printable
from ..fields import RunName as RunName
from ..fields import Tags as Tags
from ..fields import Workflow as Workflow
from ..fields import Zoned as Zoned

MAX_REFS = 32  # that a run declares


class RunBody(BaseModel):
    """A run to be opened."""

    model_config = CAMEL
    run_id: RunName | None = None
    agent_id: AgentName | None = None
    workflow_id: Workflow | None = None
    memory_refs: Annotated[list[MemoryRefText], Field(max_length=MAX_REFS)] = []


class RunSecretBody(BaseModel):
    """A value that is a secret of a run."""

    model_config = CAMEL
    secret_id: Annotated[str, Field(min_length=1, max_length=LONGEST_SECRET_ID), Exact]
    value: Annotated[str, Field(repr=False), Exact]


class RunEndBody(BaseModel):
    """How a run has ended."""

    model_config = CAMEL
    status: Literal["completed", "failed", "cancelled"]


class RunForkBody(BaseModel):
    """How a run is made again, and from which of its events on."""

    model_config = CAMEL
    mode: Literal["replay", "branch"]
    from_seq: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _together(self) -> "RunForkBody":
        if self.mode == "branch" and self.from_seq is None:
            raise fault_of("fromSeq", "is required")
        return self
