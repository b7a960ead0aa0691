"""What bodies of passes and of forgetting may hold."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, model_validator

from ...http.faults import fault, fault_of
from ..consolidation import MOST_MERGED
from ..fields import CAMEL, ContentText, EntryName, Exact, MemoryRefText, Tags, Zoned
from ..refs import LONGEST_ID

MOST_MERGES = 100


def _each_once(ids: list[str]) -> list[str]:
    if len(set(ids)) < len(ids):
        raise fault("must name each entry once")
    return ids


class CompactBody(BaseModel):
    """A ref whose oldest entries an archive takes the place of."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    content: ContentText | None = None
    keep_sources: bool = False


class DistillBody(BaseModel):
    """A ref whose entries an archive tells of, within a budget of tokens."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    token_budget: Annotated[int, Field(ge=1)] | None = None
    content: ContentText | None = None
    recursive: bool = False
    expires_at: Zoned | None = None


class MergeBody(BaseModel):
    """Entries that become one, and what it says."""

    model_config = CAMEL
    ids: Annotated[
        list[EntryName],
        Field(min_length=MOST_MERGED.start, max_length=MOST_MERGED.stop - 1),
        AfterValidator(_each_once),
    ]
    content: ContentText
    tags: Tags = []


class ConsolidateBody(BaseModel):
    """A ref whose entries are to stand for what they say, too."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    merges: Annotated[list[MergeBody], Field(max_length=MOST_MERGES)] = []

    @model_validator(mode="after")
    def _together(self) -> "ConsolidateBody":
        ids = [it for merge in self.merges for it in merge.ids]
        if len(set(ids)) < len(ids):
            raise fault_of("merges", "must name each entry once")
        return self


class ForgetBody(BaseModel):
    """Whom to forget."""

    model_config = CAMEL
    subject: Annotated[str, Field(min_length=1, max_length=LONGEST_ID), Exact]
    dry_run: bool = False
