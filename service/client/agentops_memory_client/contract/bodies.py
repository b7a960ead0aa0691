"""What is sent, as far as both who send it and who take it here must agree."""

from collections.abc import Sequence


def listed(tags: Sequence[str]) -> object:
    """The tags as a list; a text is none, and is left for the service to refuse."""
    return tags if isinstance(tags, str) else list(tags)
