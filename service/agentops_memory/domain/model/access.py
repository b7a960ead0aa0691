"""Who may do what: the roles of callers, and the projects that they act on."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NewType

from ..errors import Denied, Invalid
from ..text.visible import invisible
from .space import GLOBAL_SCOPE, Project, Space, project_name

TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)
DEFAULT_TENANT = TenantId("default")
NOT_YOUR_STORES = "Memory stores are for keys that act on every project."
NOT_YOUR_PROJECT = "Your key does not act on this project, or not on this session's."

ANY = "*"  # in a pattern: any characters, or none
MOST_ANY = 8  # of them in one pattern
MOST_PATTERNS = 100  # of one key
LONGEST_PATTERN = 200  # code points


class Role(StrEnum):
    """What a caller may do; each may also do what those before it may."""

    READER = "reader"  # read, but export nothing
    WRITER = "writer"  # save, end, amend, delete so that it can be restored
    ADMIN = "admin"  # erase, export, import, redact; keys and tenants

    def includes(self, other: "Role") -> bool:
        """Whether this role may do what the other may."""
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True)
class Patterns:
    """The projects that a caller acts on: names in which `*` stands for any characters."""

    names: tuple[str, ...] = (ANY,)

    @cached_property
    def are_everything(self) -> bool:
        """Whether every project matches; only such a caller changes global memories."""
        return ANY in self.names

    def match(self, project: Project) -> bool:
        """Whether a project matches one of them."""
        return self.are_everything or any(_is_like(project, name) for name in self.names)


EVERYTHING = Patterns()


def patterns(names: tuple[str, ...]) -> Patterns:
    """The patterns, folded as project names are. Invalid for none, for too many or too long."""
    folded = tuple(dict.fromkeys(project_name(name) for name in names))
    if not folded or not all(folded):
        raise Invalid("A project pattern is a name such as billing, or billing-*, or *.")
    if len(folded) > MOST_PATTERNS:
        raise Invalid(f"A key has at most {MOST_PATTERNS} project patterns.")
    if any(len(name) > LONGEST_PATTERN or name.count(ANY) > MOST_ANY for name in folded):
        raise Invalid(
            f"A project pattern has at most {LONGEST_PATTERN} characters and {MOST_ANY} stars."
        )
    return Patterns(folded)


def new_patterns(names: tuple[str, ...]) -> Patterns:
    """The patterns of a new key. Invalid also for one that does not look like what it matches."""
    made = patterns(names)
    if signs := ", ".join(filter(None, map(invisible, made.names))):
        raise Invalid(f"A project pattern has no invisible characters, such as {signs}.")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: of which tenant, with which rights, on which projects, by which key.

    Without a key it is one whom the operator trusts: the command line, or
    anybody while the service is open.
    """

    tenant: TenantId = DEFAULT_TENANT
    role: Role = Role.ADMIN
    projects: Patterns = EVERYTHING
    key: KeyId | None = None

    def require(self, role: Role) -> None:
        """Refuse with Denied what needs a higher role."""
        if not self.role.includes(role):
            raise Denied(f"This needs a key with the role {role}.")

    def require_project(self, project: Project) -> None:
        """Refuse with Denied a project that the key does not act on, whether it exists or not."""
        if not self.projects.match(project):
            raise Denied(NOT_YOUR_PROJECT)

    def require_stores(self) -> None:
        """Refuse with Denied a key that does not act on every project."""
        if not self.projects.are_everything:
            raise Denied(NOT_YOUR_STORES)

    def require_space(self, space: Space) -> None:
        """Refuse with Denied to change what the key does not act on."""
        self.require_project(space.project)
        if space.scope == GLOBAL_SCOPE and not self.projects.are_everything:
            raise Denied("A global memory is changed with a key for every project alone.")


OPERATOR = Caller()


def tenant_id(text: str) -> TenantId:
    """The text as a tenant's name, which is safe as a file's; Invalid if it is none."""
    if not _NAME.fullmatch(text):
        raise Invalid(
            "A tenant's name has 1 to 63 of the characters a-z, 0-9 and -, and does not begin "
            "with -."
        )
    return TenantId(text)


def _is_like(text: str, pattern: str) -> bool:
    """Whether the text is the pattern with something for each star; in linear time."""
    first, *parts = pattern.split(ANY)
    if not parts:
        return text == pattern
    *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if at > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:  # the first place is as good as any
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
