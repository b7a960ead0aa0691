"""Where memories live: projects and their scopes, and stores."""

import unicodedata
from dataclasses import dataclass
from typing import NewType

from ..secrets.redaction import redacted

MAX_NAME = 1000  # code points; no longer name is ever stored, so none needs folding
Project = NewType("Project", str)
"""A normalized project name; only `project_name` makes one."""
StoreId = NewType("StoreId", str)
PROJECT_SCOPE = "project"
GLOBAL_SCOPE = "global"
UNKNOWN_PROJECT = Project("unknown")
NO_PROJECT = Project("")  # of the spaces that are stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Where memories live: a scope of a project, or a store, which belongs to no project."""

    project: Project
    scope: str = PROJECT_SCOPE

    @classmethod
    def of_store(cls, store: StoreId) -> "Space":
        """The space that is a store."""
        return cls(project=NO_PROJECT, scope=store)

    @property
    def is_store(self) -> bool:
        """Whether its memories lie at paths, have no session, and keep all their revisions."""
        return self.project == NO_PROJECT


def project_name(name: str) -> Project:
    """The normalized name of a project: redacted, NFC, trimmed, lower case."""
    if len(name) > MAX_NAME:
        return Project(name)
    name = redacted(name).text
    if name.isascii():
        return Project(name.strip().lower())
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().lower())
    return Project(folded.strip())
