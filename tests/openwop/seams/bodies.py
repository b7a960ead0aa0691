"""What bodies of the seams may hold; of what a host would take, they ignore the rest."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from agentops_memory.http.bodies import fault_of
from agentops_memory.openwop.api import (
    CamelBody,
    ContentText,
    Exact,
    MemoryRefText,
    OwnName,
    Tags,
    Zoned,
)
from agentops_memory.openwop.host_runs import RunForkBody

MOST_SEEDS = 500
MOST_SOURCES = 100


class SeamRunBody(CamelBody):
    """A fixture to be run; the tenant is that of the key."""

    workflow_id: Annotated[str, Exact]


class SeamForkBody(RunForkBody):
    """How a run is made again; only a branch may have other options."""

    run_options_overlay: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _of_branches(self) -> "SeamForkBody":
        if self.mode == "replay" and self.run_options_overlay:
            raise fault_of("runOptionsOverlay", "is for branches")
        return self


class SeedBody(CamelBody):
    """An entry that is put, whether it has ended or not."""

    id: OwnName
    content: ContentText
    tags: Tags = Field(default=[])
    expires_at: Zoned | None = None


class SeedsBody(CamelBody):
    """Entries of a ref; a live one with the id of one of them is replaced."""

    memory_ref: MemoryRefText
    entries: Annotated[list[SeedBody], Field(min_length=1, max_length=MOST_SEEDS)]


class SeamRefBody(CamelBody):
    """A ref over which a pass is made."""

    memory_ref: MemoryRefText


class SourceBody(CamelBody):
    """A text to be distilled."""

    content: ContentText


class SeamDistillBody(SeamRefBody):
    """What is distilled: the sources, else what the ref holds."""

    token_budget: Annotated[int, Field(ge=1)] | None = None
    sources: (
        Annotated[list[ContentText | SourceBody], Field(min_length=1, max_length=MOST_SOURCES)]
        | None
    ) = None

    @property
    def contents(self) -> list[str]:
        return [it if isinstance(it, str) else it.content for it in self.sources or ()]


class SeamConsolidateBody(SeamRefBody):
    """What is consolidated, and whether a secret is among it."""

    include_secret_canary: bool = False


class SeamFireBody(SeamRefBody):
    """What a commitment waits for, and whether its intention is told beside the event."""

    condition: Literal["time", "predicate"]
    include_intention_canary: bool = False
