"""What a consolidation supersedes: a model of the rule."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, strategies as st

from agentops_memory.memory.memory import MemoryId
from agentops_memory.openwop.api import RefEntryId
from agentops_memory.openwop.archives import units
from agentops_memory.openwop.consolidation import plan
from agentops_memory.openwop.entries import RefEntry

from ..support.requirements import requirement
from ..support.samples import examples

START = datetime(2026, 5, 1, tzinfo=UTC)
INCIDENTAL = ("source:", "run-id:", "node:", "workflow:")
SENTENCES = ["Heron.", "heron", "Stork!", "Owl, rook.", "owl rook", "Rook owl.", "...", "-"]
TAGS = ["a", "b", "key:", "key:x", "key:y", "subject:ada", "subject:bob", "source:1", "node:2"]
SAID = st.tuples(
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=4).map(" \n".join),
    st.one_of(st.just([]), st.lists(st.sampled_from(TAGS), unique=True, max_size=3)).map(tuple),
)
EXAMPLES = examples(150)
APART = ["", "a", "A", "b", "a b", "a sourcex", "a subject:ada", "a key:x", "a source:1 node:2"]


def entries(*said: tuple[str, tuple[str, ...]]) -> list[RefEntry]:
    """Entries, oldest first; the ids do not follow their age."""
    return [
        RefEntry(
            id=RefEntryId(f"e{at}"), memory=MemoryId(100 + (at * 7) % 97), uid=f"uid-{at}",
            content=content, tags=tags, created_at=START + timedelta(seconds=at), expires_at=None,
        )
        for at, (content, tags) in enumerate(said)
    ]  # fmt: skip


ENTRIES = st.lists(SAID, max_size=9).map(lambda said: entries(*said))


def places(those: Sequence[RefEntry]) -> list[tuple[int, int]]:
    """The plan's links by the entries' places: what stays, what goes."""
    at = {entry.memory: place for place, entry in enumerate(those)}
    return [(at[link.newer], at[link.older]) for link in plan(those)]


def said_by(entry: RefEntry) -> set[tuple[str, ...]]:
    return {unit.words for unit in units(entry.content)}


def keys(entry: RefEntry) -> set[str]:
    return {tag for tag in entry.tags if tag.startswith("key:") and tag != "key:"}


def subjects(entry: RefEntry) -> set[str]:
    return {tag for tag in entry.tags if tag.startswith("subject:")}


def telling(entry: RefEntry) -> set[str]:
    return {tag for tag in entry.tags if not tag.startswith(INCIDENTAL)}


def newer_holders(those: Sequence[RefEntry], at: int, key: str) -> list[int]:
    about = subjects(those[at])
    later = range(at + 1, len(those))
    return [it for it in later if key in keys(those[it]) and subjects(those[it]) == about]


def model(those: Sequence[RefEntry]) -> list[tuple[int, int]]:
    """The rule as it is written, in quadratic time."""
    links = dict[int, int]()
    for at, entry in enumerate(those):
        holders = [newer_holders(those, at, key) for key in keys(entry)]
        if holders and all(holders):
            links[at] = max(map(max, holders))
    current = [at for at in range(len(those)) if at not in links]
    for at in current:
        supersets = [
            (len(said_by(those[it])), it)
            for it in current
            if telling(those[it]) == telling(those[at]) and said_by(those[at]) <= said_by(those[it])
        ]
        if said_by(those[at]) and max(supersets)[1] != at:
            links[at] = max(supersets)[1]
    return [(links[at], at) for at in sorted(links)]


@EXAMPLES
@given(ENTRIES)
@example(entries(*(("Heron.", tuple(tags.split())) for tags in APART)))
@requirement("OW-78", "OW-79")
def test_a_plan_is_what_the_rule_says(those: list[RefEntry]) -> None:
    assert places(those) == model(those)
