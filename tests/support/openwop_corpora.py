"""Corpora by chance, and the law of consolidation: what may go, and what has to stay."""

import random
import re
import unicodedata
from collections import Counter
from typing import Any

from .openwop_hosts import Host, Json

WORDS = "heron Heron egret stork CRANE \u00e9tude e\u0301tude \u7530 7".split()
ENDS = [".", "!", "?", "\u2026", "\n", " ", ";"]
TAGS = ["a", "b", "source:x", "source:y", "run-id:1", "node:n", "workflow:w"]
KEYS, SUBJECTS = ["key:k", "key:l"], ["subject:ada", "subject:bob"]
BY_THE_WAY = ("source:", "run-id:", "node:", "workflow:")  # tags that do not tell apart

Units = frozenset[tuple[str, ...]]


def text_by(chance: random.Random) -> str:
    """A few sentences of few words, so that many say the same."""
    parts = list[str]()
    for _ in range(chance.choice([1, 1, 2, 3])):
        parts += [" ".join(chance.choices(WORDS[:5], k=chance.choice([1, 1, 2])))]
        parts += [chance.choice(ENDS), chance.choice([" ", " ", "  "])]
    return "".join(parts) + chance.choice(["", "", chance.choice(WORDS)])


def tags_by(chance: random.Random, *, keys: bool = True) -> list[str]:
    """Few tags, among them now and again a key, a subject or a pin."""
    tags = [it for it in TAGS if chance.random() < 0.15]
    if keys:
        tags += [it for it in KEYS if chance.random() < 0.2]
    tags += [chance.choice(SUBJECTS)] if chance.random() < 0.2 else []
    tags += ["pinned"] if chance.random() < 0.05 else []
    chance.shuffle(tags)
    return tags


def fill(host: Host, chance: random.Random, count: int, *, keys: bool = True) -> list[Json]:
    return [host.put(text_by(chance), tags=tags_by(chance, keys=keys)) for _ in range(count)]


def units(text: str) -> Units:
    """What a text says, sentence by sentence, as the words of each."""
    found = list[tuple[str, ...]]()
    for line in text.splitlines():
        parts = re.split(r"(?<=[.!?\u2026])\s+|(?<=[\u3002\uff01\uff1f])", line)
        found += [_words(it) for it in parts]
    return frozenset(it for it in found if it)


def _words(unit: str) -> tuple[str, ...]:
    folded = unicodedata.normalize("NFKC", unit).casefold()
    signs = [it if unicodedata.category(it)[0] in "LNM" else " " for it in folded]
    return tuple("".join(signs).split())


def told_apart_by(entry: Json) -> frozenset[str]:
    """The tags that entries must share to be one."""
    return frozenset(it for it in entry["tags"] if not it.startswith(BY_THE_WAY))


def keys_of(entry: Json) -> set[str]:
    return {it for it in entry["tags"] if it.startswith("key:")}


def subjects_of(entry: Json) -> set[str]:
    return {it for it in entry["tags"] if it.startswith("subject:")}


def may_pass(entry: Json) -> bool:
    """Whether it is an input."""
    return "pinned" not in entry["tags"] and "archive" not in entry["tags"]


def is_said_by(entry: Json, other: Json) -> bool:
    """Whether the other one says all of it, of the same."""
    alike = told_apart_by(entry) == told_apart_by(other)
    return alike and units(entry["content"]) <= units(other["content"])


def assert_nothing_is_lost(before: list[Json], after: list[Json]) -> None:
    """What is listed no more is said by one that is, or newer ones hold its keys; newest first."""
    place = {it["id"]: number for number, it in enumerate(before)}
    listed = {it["id"] for it in after}
    for entry in before:
        if entry["id"] in listed:
            continue
        assert may_pass(entry), entry
        newer = [it for it in after if place[it["id"]] < place[entry["id"]]]
        keys = keys_of(entry)
        is_stale = bool(keys) and all(any(key in it["tags"] for it in newer) for key in keys)
        assert is_stale or any(is_said_by(entry, it) for it in after if may_pass(it)), entry


def assert_nothing_is_left(after: list[Json]) -> None:
    """No two of what is listed say the same; none is stale but for one of another subject."""
    inputs = [it for it in after if may_pass(it)]
    for place, entry in enumerate(inputs):
        others = inputs[:place] + inputs[place + 1 :]
        # What has no word in it says nothing: whether that is said by another is not told.
        if units(entry["content"]):
            assert not any(is_said_by(entry, it) for it in others), entry
        keys, newer = keys_of(entry), inputs[:place]
        rivals = [it for it in newer if subjects_of(it) == subjects_of(entry)]
        assert not keys or not all(any(key in it["tags"] for it in rivals) for key in keys), entry


def tally(before: list[Json], after: list[Json]) -> Counter[str]:
    """How many inputs there were, and are."""
    return Counter(
        {"inputCount": sum(map(may_pass, before)), "outputCount": sum(map(may_pass, after))}
    )


def counts(payload: Json) -> dict[str, Any]:
    return {it: payload[it] for it in ("inputCount", "outputCount")}
