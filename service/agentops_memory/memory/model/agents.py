"""Agents: their ids, by which keys each of them asks, and what it has (RFC-0015 §9.1)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NewType

from ...errors import Denied, Invalid
from .access import ANY, LONGEST_PATTERN, MOST_ANY, MOST_PATTERNS, Caller, Patterns

AgentId = NewType("AgentId", str)

LONGEST_AGENT = 128  # characters
NOT_YOUR_AGENT = "Your key does not speak for this agent."

# Visible ASCII without what ends a path, a list or a header's value: clients send ids unescaped.
_SIGN = r'(?![/?#%*,"])[!-~]'
_AGENT = re.compile(rf"(?:{_SIGN}){{1,{LONGEST_AGENT}}}")
_PATTERN = re.compile(rf"(?:\*|{_SIGN})+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """An agent in the list of all, with its live entries."""

    agent: AgentId
    working: int
    episodic: int
    size: int  # bytes of their values
    changed_at: datetime | None  # the newest write of them
    capacity: int | None  # of episodic entries, if it has one of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExtent:
    """What is stored of an agent, expired entries included; semantic ones are a namespace's."""

    working: int = 0
    episodic: int = 0
    size: int = 0  # bytes of their values
    events: int = 0

    def __bool__(self) -> bool:
        return bool(self.working or self.episodic or self.events)

    def plus(self, other: "AgentExtent") -> "AgentExtent":
        """Both together."""
        return AgentExtent(
            working=self.working + other.working,
            episodic=self.episodic + other.episodic,
            size=self.size + other.size,
            events=self.events + other.events,
        )


def agent_id(text: str) -> AgentId:
    """The text as an agent's id; Invalid otherwise."""
    if not _AGENT.fullmatch(text) or text in (".", ".."):  # which clients fold in a path
        raise Invalid(
            f"An agent's id has 1 to {LONGEST_AGENT} visible ASCII characters, "
            'none of them / ? # % * , or ".'
        )
    return AgentId(text)


def agent_patterns(names: Iterable[str]) -> Patterns:
    """The agents that a key speaks for; Invalid for too many, too long or malformed patterns."""
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) > MOST_PATTERNS:
        raise Invalid(f"A key speaks for at most {MOST_PATTERNS} patterns of agents.")
    for name in distinct:
        if (
            len(name) > LONGEST_PATTERN
            or name.count(ANY) > MOST_ANY
            or not _PATTERN.fullmatch(name)
        ):
            raise Invalid("An agent's pattern is a name such as coder, or team-*, or *.")
    return Patterns(distinct)


def asking(caller: Caller, named: str) -> AgentId:
    """The agent that asks: the one that is named, or the only one that the key speaks for.

    Denied for a key that does not speak for it, or for none; Invalid if nobody is named
    and the key speaks for several.
    """
    spoken = caller.agents.names
    if not spoken:
        raise Denied("Your key speaks for no agent; `keys create --agent PATTERN` makes one.")
    if not named:
        if len(spoken) > 1 or ANY in spoken[0]:
            raise Invalid("The header X-Agent-ID must say which agent asks.")
        return AgentId(spoken[0])
    if not caller.agents.match(agent := agent_id(named)):
        raise Denied(NOT_YOUR_AGENT)
    return agent
