"""Texts that are searched for secrets together: each that is found alone is found in company."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agentops_memory.memory.memory import Memory, SessionId, Text
from agentops_memory.memory.redactor import BATCH, SEPARATOR, Redactor
from agentops_memory.memory.space import Project, Space
from agentops_memory.secrets.redaction import DEFAULT_RULES, Rules

from .test_redaction_assignments import CHANCE, FORMS, NAMES, SPELLINGS, STRONG, written
from .test_redaction_rules import LEFT, SAMPLES

NOW = datetime(2029, 1, 1, tzinfo=UTC)
KEY = "AKIA" + "IOSFODNN7" + "EXAMPLE"
# What a pattern might take for its own beginning or end.
NEIGHBOURS = (
    "", "a", "word", "password", "password:", "password=", "token =", "username: bob", "export",
    "Authorization: Bearer", "curl -u", "mysql -u root \\", "Local<Private>", "<private>",
    "</private>", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "-----", "'", '"',
    "`", "\\", "://", "https://bob:", "@host", "=", ":", "#", "--", "\u4e2d", "[REDACTED:", "x]",
)  # fmt: skip


def memory(content: str, **fields: str) -> Memory:
    return Memory(
        uid="", session=SessionId("s"), space=Space(project=Project("p")), key=fields.get("key"),
        text=Text(type="t", title=fields.get("title", "t"), content=content),
        last_seen_at=NOW, created_at=NOW, updated_at=NOW,
    )  # fmt: skip


@pytest.mark.slow
def test_what_is_found_alone_is_found_beside_any_other() -> None:
    texts = ["".join(parts) for samples in SAMPLES.values() for parts in samples]
    texts += [written(spelling, NAMES[0], STRONG) for spelling in SPELLINGS]
    texts += [written("env in quotes", NAMES[0], form) for form in FORMS.values()]
    texts += [written("env in quotes", label, value) for label, value in CHANCE.items()]
    texts += [text for text, left in LEFT.items() if text != left]
    for text in texts:
        for neighbour in NEIGHBOURS:
            together = SEPARATOR.join([neighbour, text, neighbour])
            assert DEFAULT_RULES.redacted(together).count, (text, neighbour)


def test_a_registered_value_is_found_beside_others() -> None:
    redactor = Redactor(Rules(values=(("id", "correct horse"),)))

    some = redactor.records([memory("correct horse"), memory("plain", title="horse")])
    one, other = (it.text for it in some if isinstance(it, Memory))
    assert (one.content, other.title) == ("[REDACTED:id]", "horse")


def test_memories_come_out_as_they_would_alone_and_each_secret_counts_once() -> None:
    some = [memory(f"Row {number}.") for number in range(3 * BATCH + 1)]
    some[BATCH + 3] = memory(f"It is {KEY}.", title=KEY)
    some[-1] = replace(memory("Last."), key=KEY)
    together, alone = Redactor(DEFAULT_RULES), Redactor(DEFAULT_RULES)

    assert list(together.records(some)) == [alone.memory(it) for it in some]
    assert together.count == alone.count == 3


def test_what_is_found_in_company_alone_stays(  # a label, and what could be its value
) -> None:
    some = [memory("password="), memory("plain")]

    assert list(Redactor(DEFAULT_RULES).records(some)) == some
