"""What the full-text index holds of a memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """What the index holds of one live memory: prepared text, by column."""

    area: int
    title: str
    content: str
    context: str
    tags: str

    @property
    def own(self) -> str:
        """The memory's own words, without those that it borrows."""
        return "\n".join((self.title, self.content, self.tags))
