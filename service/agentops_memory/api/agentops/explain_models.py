"""The JSON of an explanation: why a memory was found, why another was not."""

from pydantic import BaseModel, Field


class MatchedTerm(BaseModel):
    """A term in a memory, what it adds to the score of a sentence, and the fields' shares."""

    sentence: int
    term: str = Field(description="As it was looked for; `*` at its end means any ending.")
    instead_of: str | None = Field(
        default=None, description="The word that nobody wrote, if this one stands for it."
    )
    score: float
    fields: dict[str, float]


class SentencePart(BaseModel):
    """A sentence's part of a score; one in which the memory was not among the best has none."""

    sentence: int
    score: float
    share: float
    counted: bool


class ItemExplanation(BaseModel):
    """Why a memory is in an answer. One found by its age or topic key alone has no score."""

    id: int
    place: int
    store_id: str | None = Field(default=None, description="The memory store that it lies in.")
    memory_id: str | None = Field(default=None, description="Its id in that store.")
    source_place: int | None = Field(
        default=None, description="Its place in its project or store, before these were merged."
    )
    rank: float
    method: str
    tier: str | None = None
    score: float | None = None
    matched: list[MatchedTerm]
    fields: dict[str, float] | None = None
    sentences: list[SentencePart] | None = None
    content_cut: bool | None = None


class WhyNotAnswer(BaseModel):
    """What kept a memory out of an answer; with the reason `none` it is in."""

    id: int
    reason: str
    filters: list[str] | None = None
    tier: str | None = None
    place: int | None = None
    score: float | None = None
    last_score: float | None = None
    older: bool | None = None
    beyond_depth: bool | None = None


class LeftOutEntry(BaseModel):
    """A candidate that a budget had no room for."""

    id: int
    place: int
    tokens: int
    chars: int


class BudgetUse(BaseModel):
    """What a context takes of a prompt, and what had no room."""

    max_tokens: int | None = None
    max_chars: int | None = None
    tokens: int
    chars: int
    summaries_left_out: int
    left_out: list[LeftOutEntry]


class AnswerExplanation(BaseModel):
    """How a text was understood, and what became of it."""

    method: str
    terms: list[list[str]]
    dropped: list[str]
    corrected: dict[str, list[str]]
    degraded: bool
    timed_out: bool
    explained: int
    budget: BudgetUse | None = None
    why_not: WhyNotAnswer | None = None
