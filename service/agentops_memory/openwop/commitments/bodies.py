"""What a body that arms a commitment may hold."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from ...http.faults import fault_of
from ..memory.bodies import CAMEL, EntryName, Exact, MemoryRefText, Zoned
from ..rules.screen import LONGEST_TAG


class CommitmentBody(BaseModel):
    """A condition of an entry: a time to come, or a tag that is waited for."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    memory_id: EntryName
    condition: Literal["time", "predicate"]
    due_at: Zoned | None = None
    tag: Annotated[str, Field(min_length=1, max_length=LONGEST_TAG), Exact] | None = None

    @model_validator(mode="after")
    def _together(self) -> "CommitmentBody":
        given = {"dueAt": self.due_at, "tag": self.tag}
        needed, other = ("dueAt", "tag") if self.condition == "time" else ("tag", "dueAt")
        if given[needed] is None:
            raise fault_of(needed, "is required")
        if given[other] is not None:
            raise fault_of(other, "belongs to another condition")
        return self
