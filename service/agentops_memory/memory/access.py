"""Access control: callers, their tenants, roles and patterns, and the agents they speak for."""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import NewType

from ..errors import Denied, Invalid
from ..light import dataclass, field
from ..recall.visible import invisible
from .space import GLOBAL_SCOPE, Project, Space, project_name

TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)
DEFAULT_TENANT = TenantId("default")
NOT_YOUR_STORES = "Memory stores are for keys that act on every project."
NOT_YOUR_REFS = "Memory refs and runs are for keys that act on every project."
NOT_YOUR_PROJECT = "Your key does not act on this project, or not on this session's."

AgentId = NewType("AgentId", str)
NOT_YOUR_AGENT = "Your key does not speak for this agent."

ANY = "*"  # in a pattern: any characters, or none
MOST_ANY = 8  # of them in one pattern
MOST_PATTERNS = 100  # of one key
LONGEST_PATTERN = 200  # code points


class Role(StrEnum):
    """What a caller may do; each role includes those before it."""

    READER = "reader"  # read, but export nothing
    WRITER = "writer"  # save, end, amend, delete so that it can be restored
    ADMIN = "admin"  # erase, export, import, redact; keys and tenants

    def includes(self, other: "Role") -> bool:
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True)
class Patterns:
    """What a caller may access, by names in which `*` matches any characters."""

    names: tuple[str, ...] = (ANY,)

    @cached_property
    def are_everything(self) -> bool:
        """Whether every name matches: of projects, changing a global memory requires it."""
        return ANY in self.names

    def match(self, name: str) -> bool:
        return self.are_everything or any(_is_like(name, pattern) for pattern in self.names)


EVERYTHING = Patterns()
NOTHING = Patterns(())


def patterns(names: tuple[str, ...]) -> Patterns:
    """Patterns, normalized as project names are; Invalid for none, too many or too long ones."""
    folded = tuple(dict.fromkeys(project_name(name) for name in names))
    if not folded or not all(folded):
        raise Invalid("A project pattern must be a name such as billing, or billing-*, or *.")
    if len(folded) > MOST_PATTERNS:
        raise Invalid(f"A key has at most {MOST_PATTERNS} project patterns.")
    if any(len(name) > LONGEST_PATTERN or name.count(ANY) > MOST_ANY for name in folded):
        raise Invalid(
            f"A project pattern has at most {LONGEST_PATTERN} characters and {MOST_ANY} stars."
        )
    return Patterns(folded)


def new_patterns(names: tuple[str, ...]) -> Patterns:
    """The patterns of a new key; Invalid also for invisible characters."""
    made = patterns(names)
    if signs := ", ".join(filter(None, map(invisible, made.names))):
        raise Invalid(f"A project pattern must not contain invisible characters, such as {signs}.")
    return made


@dataclass(slots=True, kw_only=True)
class IdempotentRequest:
    """A request under its caller's idempotency key, as digests; used for one write."""

    key: bytes
    request: bytes
    status: int  # of the answer; the write replaces it by that of the first
    is_replay: bool = False  # set by the write: whether it was executed before


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The identity of a request: tenant, role, what it may access, and the key that grants it.

    Without a key it is trusted by the operator: the command line, or anybody while the
    service is open.
    """

    tenant: TenantId = DEFAULT_TENANT
    role: Role = Role.ADMIN
    projects: Patterns = EVERYTHING
    agents: Patterns = EVERYTHING  # for which it speaks
    coordinates: bool = True  # whether it may make intents
    key: KeyId | None = None
    key_name: str = field(default="", compare=False)
    request: IdempotentRequest | None = field(default=None, compare=False, repr=False)

    @property
    def is_replay(self) -> bool:
        """Whether its write was done before, under the same idempotency key."""
        return self.request is not None and self.request.is_replay

    def require(self, role: Role, scope: str | None = None) -> None:
        """Raise Denied unless the caller has this role; `scope` is what a protocol calls it."""
        if not self.role.includes(role):
            raise Denied(f"This needs a key with the role {role}.", scope or role)

    def require_project(self, project: Project) -> None:
        """Raise Denied for a project outside the patterns, whether it exists or not."""
        if not self.projects.match(project):
            raise Denied(NOT_YOUR_PROJECT)

    def require_stores(self) -> None:
        if not self.projects.are_everything:
            raise Denied(NOT_YOUR_STORES)

    def require_refs(self) -> None:
        """Raise Denied unless the patterns match every project: refs belong to the tenant."""
        if not self.projects.are_everything:
            raise Denied(NOT_YOUR_REFS, ANY)

    def require_space(self, space: Space) -> None:
        """Raise Denied unless the caller may change memories of this space."""
        self.require_project(space.project)
        if space.scope == GLOBAL_SCOPE and not self.projects.are_everything:
            raise Denied("Changing a global memory needs a key for every project.")


OPERATOR = Caller()


def tenant_id(text: str) -> TenantId:
    """The text as a tenant id, which is safe as a file name; Invalid otherwise."""
    if not _NAME.fullmatch(text):
        raise Invalid(
            "A tenant's name must have 1 to 63 of the characters a-z, 0-9 and -, and must not "
            "begin with -."
        )
    return TenantId(text)


def _is_like(text: str, pattern: str) -> bool:
    """Whether the text matches the pattern, in linear time."""
    first, *parts = pattern.split(ANY)
    if not parts:
        return text == pattern
    *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if at > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:  # the first occurrence is as good as any
        start = text.find(part, at, end)
        if start < 0:
            return False
        at = start + len(part)
    return True


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

LONGEST_AGENT = 128  # characters

# Visible ASCII without what ends a path, a list or a header's value: clients send ids unescaped.
_SIGN = r'(?![/?#%*,"])[!-~]'
_AGENT = re.compile(rf"(?:{_SIGN}){{1,{LONGEST_AGENT}}}")
_PATTERN = re.compile(rf"(?:\*|{_SIGN})+")


def agent_id(text: str) -> AgentId:
    """The text as an agent's id; Invalid otherwise."""
    if not _AGENT.fullmatch(text) or text in (".", ".."):  # which clients fold in a path
        raise Invalid(
            f"An agent's id must have 1 to {LONGEST_AGENT} visible ASCII characters, "
            'none of them / ? # % * , or ".'
        )
    return AgentId(text)


def agent_patterns(names: Iterable[str]) -> Patterns:
    """The agents that a key speaks for; Invalid for too many, too long or malformed patterns."""
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) > MOST_PATTERNS:
        raise Invalid(f"A key speaks for at most {MOST_PATTERNS} patterns of agents.")
    for it in distinct:
        if len(it) > LONGEST_PATTERN or it.count(ANY) > MOST_ANY or not _PATTERN.fullmatch(it):
            raise Invalid("An agent pattern must be a name such as coder, or team-*, or *.")
    return Patterns(distinct)


def asking(caller: Caller, named: str) -> AgentId:
    """The agent that asks: the one that is named, or the only one that the key speaks for.

    Denied for a key that does not speak for it, or for none; Invalid if nobody is named
    and the key speaks for several.
    """
    spoken = caller.agents.names
    if not spoken:
        raise Denied(
            "Your key speaks for no agent; `keys create --agent PATTERN` creates one that does."
        )
    if not named:
        if len(spoken) > 1 or ANY in spoken[0]:
            raise Invalid("The header X-Agent-ID must name the calling agent.")
        return AgentId(spoken[0])
    if not caller.agents.match(agent := agent_id(named)):
        raise Denied(NOT_YOUR_AGENT)
    return agent
