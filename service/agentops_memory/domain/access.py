"""Who may do what: the roles of callers, and the projects that they act on."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from .errors import Invalid
from .text import Project, project_name

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
        return self.are_everything or self._expression.fullmatch(project) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return _expression(self.names)


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


@lru_cache(256)
def _expression(names: tuple[str, ...]) -> re.Pattern[str]:
    each = (".*".join(map(re.escape, name.split(ANY))) for name in names)
    return re.compile("|".join(each), re.DOTALL)
