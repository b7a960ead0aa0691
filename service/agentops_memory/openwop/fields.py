"""What the fields of OpenWOP's bodies may hold."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..http.bodies import GIVEN, Instant, fault, must
from ..http.paging import instant
from ..memory.model.space import MemoryRef
from ..recall.text.normalization import clean
from ..recall.text.visible import has_controls
from . import refs

LONGEST_RUN, LONGEST_NODE = 128, 128  # code points
AGENT_LENGTHS = range(3, 257)
MAX_TAGS = 50

CAMEL = ConfigDict(**GIVEN, alias_generator=to_camel, populate_by_name=True)


def _tags(tags: list[str]) -> list[str]:
    kept = list(dict.fromkeys(filter(None, tags)))
    if len(kept) > MAX_TAGS:
        raise fault(f"has at most {MAX_TAGS} items")
    archives = (refs.ARCHIVE, refs.DISTILLED)
    if any(tag in archives or tag.startswith(refs.COMPACTED) for tag in kept):
        raise fault("has a tag reserved for the service")
    return kept


Exact = must(lambda text: clean(text) == text, "must have no NUL and no lone surrogate")
Printable = must(lambda text: not has_controls(text), "must not contain control characters")
ZonedText = must(
    lambda text: instant(text, needs_offset=True) is not None,
    "must be an RFC 3339 time with an offset",
)
Zoned = Annotated[Instant, ZonedText]
MemoryRefText = Annotated[
    MemoryRef, Exact, must(lambda text: not refs.is_malformed(text), "is not a memory ref"),
    Field(
        json_schema_extra={"minLength": 1, "maxLength": refs.LONGEST_REF}, examples=["mem://notes"]
    ),
]  # fmt: skip
EntryName = Annotated[
    refs.RefEntryId, Field(min_length=1, max_length=refs.LONGEST_ID), Exact, Printable
]
OwnName = Annotated[
    EntryName,
    must(lambda name: not refs.MADE.fullmatch(name), "has a form reserved for the service"),
]
RunName = Annotated[
    str, Field(min_length=1, max_length=LONGEST_RUN), Exact, Printable,
    must(lambda name: "/" not in name, "must have no slash"),
]  # fmt: skip
Node = Annotated[str, Field(min_length=1, max_length=LONGEST_NODE), Exact, Printable]
AgentName = Annotated[
    str, Field(min_length=AGENT_LENGTHS[0], max_length=AGENT_LENGTHS[-1]),
    Exact, Printable,
]  # fmt: skip
Workflow = Annotated[str, Field(min_length=1, max_length=refs.LONGEST_ID), Exact, Printable]
Tags = Annotated[
    list[Annotated[str, Field(max_length=refs.LONGEST_TAG), Exact]], AfterValidator(_tags)
]
ContentText = Annotated[
    str, Exact, must(lambda text: text.strip() != "", "must not be blank"),
    must(
        lambda text: len(text.encode()) <= refs.MAX_CONTENT,
        f"has at most {refs.MAX_CONTENT:,} bytes of UTF-8",
    ),
]  # fmt: skip
