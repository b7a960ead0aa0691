"""The size limits of a context, and how it was packed into them."""

from dataclasses import dataclass

from .memory import MemoryId

SHOWN = 300  # code points of a memory's content in a context
MOST_SHOWN = 50_000  # the length limit of a content


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The size limits of a context; None is no limit. `content_chars` are code points."""

    max_tokens: int | None = None
    max_chars: int | None = None
    content_chars: int = SHOWN

    @property
    def is_bounded(self) -> bool:
        """Whether there is any limit."""
        return self.max_tokens is not None or self.max_chars is not None

    def fits(self, tokens: int, chars: int) -> bool:
        """Whether so much fits."""
        within_tokens = self.max_tokens is None or tokens <= self.max_tokens
        return within_tokens and (self.max_chars is None or chars <= self.max_chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A memory that did not fit the budget; its place counts from one."""

    memory: MemoryId
    place: int
    tokens: int
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The size of a packed context, and what did not fit.

    `places` are those of its memories among all candidates.
    """

    tokens: int
    chars: int
    places: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    summaries_left_out: int
