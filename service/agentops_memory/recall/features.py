"""Feature flags of recall: each can be turned off, so that its effect can be measured."""

from enum import StrEnum


class Feature(StrEnum):
    """Something that recall does beyond matching words; all are on by default."""

    ANY_WORD = "any-word"
    """Any word of a prompt may match; without it every word has to."""
    STOPWORDS = "stopwords"
    """Stop words are not searched for."""
    SENTENCES = "sentences"
    """Each sentence of a prompt is scored separately."""
    SENTENCE_LENGTH = "sentence-length"
    """Of several sentences, one with many words weighs less."""
    QUESTIONS = "questions"
    """Of several sentences, one that asks weighs more; it begins at its question word."""
    SENTENCE_DEPTH = "sentence-depth"
    """Each of several sentences contributes only its ten best memories."""
    TITLE_WEIGHT = "title-weight"
    """A word in the title or the tags weighs twice as much as one in the content."""
    ALL_WORDS_FIRST = "all-words-first"
    """A search ranks memories with every word before those with any."""
    TYPOS = "typos"
    """A word that occurs nowhere is searched with the words one typo away."""
    CONTEXT = "context"
    """A memory is indexed with the end of those saved just before it."""
    FOLLOWING = "following"
    """A memory among the best gains by the words of those saved just after it."""
    CONTEXT_GUARD = "context-guard"
    """Only a short memory borrows such context."""
    TAGS = "tags"
    """Tags are searched."""
    IDENTIFIERS = "identifiers"
    """Identifiers such as `max_connections` and `HTTPServer` are found by their parts, too."""
    PAIRS = "pairs"
    """Scripts without spaces between words are indexed as character bigrams."""
    IRREGULAR_FORMS = "irregular-forms"
    """Irregular forms of a word, such as `went` and `gone`, are indexed as the word itself."""
    PRIOR = "prior"
    """Each partition of the index is judged as if it held 1,500 more memories."""


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
"""The features that shape the index; it is rebuilt when the choice of them changes."""
