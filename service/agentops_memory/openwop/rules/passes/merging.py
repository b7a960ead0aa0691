"""Which entries of a ref others make superfluous: older facts, and what another says too. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ....engine.callbacks import noop
from ....memory.model.memory import MemoryId
from ...entries import RefEntry
from ...model.passes import Link
from ...model.subjects import subjects
from .rest import Resting
from .units import units

KEY = "key:"  # and which fact an entry states
INCIDENTAL = ("source:", "run-id:", "node:", "workflow:")
"""How tags begin that tell where an entry comes from, not what it says."""

Words = tuple[str, ...]  # of a unit
Tags = frozenset[str]


def plan(entries: Sequence[RefEntry], rest: Resting = noop) -> list[Link]:
    """What a consolidation supersedes, in the order of the entries, which come oldest first.

    An entry is superseded at most once, and by one that is not. So whatever part of the plan is
    done, a plan for the rest has the other links, and none is left at the end.
    """
    stale = dict(_stale(entries, rest))
    current = [entry for entry in entries if entry.memory not in stale]
    survivors = stale | dict(_said_elsewhere(current, rest))
    return [
        Link(survivors[entry.memory], entry.memory)
        for entry in entries
        if entry.memory in survivors
    ]


def _stale(entries: Sequence[RefEntry], rest: Resting) -> Iterator[tuple[MemoryId, MemoryId]]:
    """The entries of whose keys each has a newer holder of the same subjects, and the newest.

    What supersedes them is the newest holder of one of its keys, so it is not stale.
    """
    facts = []
    for entry in entries:
        rest()
        facts.append(_facts(entry))
    newest = {fact: at for at, those in enumerate(facts) for fact in those}
    for at, those in enumerate(facts):
        rest()
        holders = [newest[fact] for fact in those]
        if holders and at not in holders:
            yield entries[at].memory, entries[max(holders)].memory


def _facts(entry: RefEntry) -> list[tuple[Tags, str]]:
    """The subjects with each key of an entry; a key without a name is none."""
    about = frozenset(subjects(entry.tags))
    return [(about, tag) for tag in entry.tags if tag.startswith(KEY) and tag != KEY]


def _said_elsewhere(
    entries: Iterable[RefEntry], rest: Resting
) -> Iterator[tuple[MemoryId, MemoryId]]:
    """The entries all of whose units another one with the same tags has, and which that is."""
    alike = defaultdict[Tags, list[RefEntry]](list)
    for entry in entries:
        rest()
        alike[_tags(entry)].append(entry)
    for those in alike.values():
        if len(those) > 1:
            yield from _covered(those, rest)


def _tags(entry: RefEntry) -> Tags:
    return frozenset(tag for tag in entry.tags if not tag.startswith(INCIDENTAL))


class _Text(NamedTuple):
    """What some entries say, by the numbers of their units; the last of them is the newest."""

    units: frozenset[int]
    entries: list[MemoryId]


def _covered(entries: Sequence[RefEntry], rest: Resting) -> Iterator[tuple[MemoryId, MemoryId]]:
    """The entries whose units a larger text has, or a newer entry of the same text.

    Of the larger ones it is the largest, of equal ones the newest. It is one that stays, and
    among the holders of the rarest unit: texts come largest first, and of those that stay alone
    it is noted which units they have.
    """
    holders = defaultdict[int, list[_Text]](list)
    for text in _largest_first(entries, rest):
        rest()
        rarest = min((holders.get(unit, []) for unit in text.units), key=len)
        survivor = next((other for other in rarest if text.units < other.units), text)
        if survivor is text:
            for unit in text.units:
                holders[unit].append(text)
        newest = survivor.entries[-1]
        yield from ((entry, newest) for entry in text.entries if entry != newest)


def _largest_first(entries: Sequence[RefEntry], rest: Resting) -> list[_Text]:
    """The different texts, the newer ones of equal size first; without those that say nothing.

    Nothing tells that what has no unit is said elsewhere.
    """
    numbers = dict[Words, int]()
    texts = dict[frozenset[int], list[tuple[int, MemoryId]]]()
    for at, entry in enumerate(entries):
        rest()
        said = {unit.words for unit in units(entry.content)}
        numbered = frozenset([numbers.setdefault(words, len(numbers)) for words in said])
        if numbered:
            texts.setdefault(numbered, []).append((at, entry.memory))
    ordered = sorted(texts.items(), key=lambda text: (len(text[0]), text[1][-1]), reverse=True)
    return [_Text(said, [memory for _, memory in those]) for said, those in ordered]
