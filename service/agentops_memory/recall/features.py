"""Feature flags of recall, each of which can be turned off to measure its effect."""

from enum import StrEnum


class Feature(StrEnum):
    """A refinement of recall beyond matching words; all are on by default."""

    ANY_WORD = "any-word"
    """A memory may match any word of a prompt; otherwise it must match every word."""
    STOPWORDS = "stopwords"
    """Stop words are not searched for."""
    SENTENCES = "sentences"
    """Each sentence of a prompt is scored separately."""
    SENTENCE_LENGTH = "sentence-length"
    """Among several sentences, a longer one weighs less."""
    QUESTIONS = "questions"
    """Among several sentences, a question weighs more; a question word begins a sentence."""
    SENTENCE_DEPTH = "sentence-depth"
    """Each of several sentences contributes only its ten best memories."""
    TITLE_WEIGHT = "title-weight"
    """A word in the title or the tags weighs twice as much as in the content."""
    ALL_WORDS_FIRST = "all-words-first"
    """A search ranks memories with every word before memories with any word."""
    TYPOS = "typos"
    """A word that occurs in no memory is searched with the words one typo away."""
    CONTEXT = "context"
    """A memory is indexed with the end of the memories saved just before it (its context)."""
    FOLLOWING = "following"
    """A memory gains from the scores of those saved just after it, among the best memories."""
    CONTEXT_GUARD = "context-guard"
    """Only short memories are indexed with context."""
    TAGS = "tags"
    """Tags are searched."""
    IDENTIFIERS = "identifiers"
    """Identifiers such as `max_connections` and `HTTPServer` are also found by their parts."""
    PAIRS = "pairs"
    """Scripts without spaces between words are indexed as character bigrams."""
    IRREGULAR_FORMS = "irregular-forms"
    """Irregular forms, such as `went` and `gone`, are indexed as their base form."""
    PRIOR = "prior"
    """The statistics of each index partition include 1,500 imaginary memories."""


Features = frozenset[Feature]

ALL: Features = frozenset(Feature)
INDEXED: Features = frozenset(
    {
        Feature.CONTEXT,
        Feature.CONTEXT_GUARD,
        Feature.TAGS,
        Feature.IDENTIFIERS,
        Feature.PAIRS,
        Feature.IRREGULAR_FORMS,
        Feature.PRIOR,
    }
)
"""The features that shape the index, which is rebuilt when their selection changes."""
