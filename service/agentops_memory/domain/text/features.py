"""What finds memories, by name: each can be left out, so that its worth can be measured."""

from enum import StrEnum


class Feature(StrEnum):
    """One thing that recall does beyond matching words. All of them are on in use."""

    ANY_WORD = "any-word"
    """Any word of a prompt may match; without it every word must."""
    STOPWORDS = "stopwords"
    """Words that say nothing are not looked for."""
    SENTENCES = "sentences"
    """Each sentence of a prompt is scored apart."""
    SENTENCE_DEPTH = "sentence-depth"
    """Each of several sentences contributes its best ten memories alone."""
    TITLE_WEIGHT = "title-weight"
    """A word in the title or the tags weighs twice one in the content."""
    ALL_WORDS_FIRST = "all-words-first"
    """A search lists what has every word before what has any."""
    TYPOS = "typos"
    """A word that nobody wrote is joined by those that differ in one letter."""
    CONTEXT = "context"
    """A memory is found by the end of what was saved just before it, too."""
    CONTEXT_GUARD = "context-guard"
    """Only a short memory is."""
    TAGS = "tags"
    """Tags are searched."""
    IDENTIFIERS = "identifiers"
    """`max_connections` and `HTTPServer` are found by their parts and as a whole."""
    PAIRS = "pairs"
    """Scripts that set no spaces are searched by pairs of characters."""


Features = frozenset[Feature]

ALL: Features = frozenset(Feature)
INDEXED: Features = frozenset(
    {
        Feature.CONTEXT,
        Feature.CONTEXT_GUARD,
        Feature.TAGS,
        Feature.IDENTIFIERS,
        Feature.PAIRS,
    }
)
"""Those that decide what the index holds: with another choice of them it is built anew."""
