"""Why a memory was found, in sentences; from the explanation that the API gives."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentops_memory_client.contract.models import Explanation

METHODS = {
    "topic_key": "its topic key holds the words",
    "recency": "as one of the newest: no word found it",
}
BY_WORDS = "by its words"
STRANGE = "The explanation is not one that this version can tell."
FIELDS = {"context": "what was saved just before it"}
TIERS = {"every": " (all of them are in it)"}


def reasons(explanation: Explanation) -> list[str]:
    """Why a memory is in an answer."""
    return _told(_reasons, explanation)


def understood(explanation: Explanation) -> list[str]:
    """How the text was read, and what became of it."""
    return _told(_understood, explanation)


def _told(told: Callable[[Explanation], Iterator[str]], explanation: Explanation) -> list[str]:
    """The sentences; one of another service may have another shape, which no model bounds."""
    try:
        return list(told(explanation))
    except (AttributeError, LookupError, TypeError, ValueError):
        return [STRANGE]


def _reasons(explanation: Explanation) -> Iterator[str]:
    method = METHODS.get(explanation.get("method", ""), BY_WORDS)
    tier = TIERS.get(explanation.get("tier", ""), "") if method == BY_WORDS else ""
    yield f"Place {explanation.get('place', '?')}, {method}{tier}."
    if matched := explanation.get("matched"):
        yield f"Matched: {', '.join(dict.fromkeys(map(_term, matched)))}."
    if fields := explanation.get("fields"):
        shares = sorted(fields.items(), key=lambda it: -it[1])
        said = [f"{FIELDS.get(name, name)} {share:.0%}" for name, share in shares if share >= 0.005]
        yield f"Where: {', '.join(said)}. Score {explanation.get('score', 0):.3g}; lower is better."
    if explanation.get("store_id"):
        yield f"From the memory store {explanation['store_id']}."
    if explanation.get("content_cut"):
        yield "Its content goes on."


def _understood(explanation: Explanation) -> Iterator[str]:
    terms = dict.fromkeys(term for sentence in explanation.get("terms", ()) for term in sentence)
    if terms:
        yield f"Looked for: {', '.join(terms)}."
    if dropped := explanation.get("dropped"):
        yield f"Not looked for, as too common or too many: {', '.join(dropped)}."
    for word, meant in explanation.get("corrected", {}).items():
        yield f"Nobody wrote {word}, so it was read as {' or '.join(meant)}."
    if explanation.get("degraded"):
        yield "The words took too long; the newest memories stand in."
    if explanation.get("timed_out"):
        yield "The time for explaining was over: some of it is left out."


def _term(matched: Mapping[str, Any]) -> str:
    instead = matched.get("instead_of")
    return f"{matched['term']} (for {instead})" if instead else str(matched["term"])
