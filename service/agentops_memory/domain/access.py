"""Who may do what: the roles of callers, and the projects that they act on."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from .errors import Invalid
from .text.normalization import Project, project_name
from .text.visible import invisible

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
