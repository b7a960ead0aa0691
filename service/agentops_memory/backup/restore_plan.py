"""What a restore is going to do: what an archive holds, beside what is in its place now."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from ..domain.model.access import DEFAULT_TENANT, TenantId
from ..domain.model.erasure import Erasure
from ..storage.sqlite.engine.tenant_files import files_of, size_of
from ..storage.sqlite.schema.contents import Contents, contents_at, erasures_at
from .manifest import Manifest, TenantPart
from .restored_keys import KeysPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The database of a tenant, and what is in its place now."""

    part: TenantPart
    path: Path
    draft: Path  # of which all was found to be good
    is_there: bool  # a database is in its place
    is_done: bool  # and it is this one
    size: int  # bytes of what is there
    now: Contents | None  # what it holds; none if it cannot be read
    erased: tuple[Erasure, ...]  # in it, which the archive does not know of


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a restore does."""

    archive: Path
    manifest: Manifest
    replacements: tuple[Replacement, ...]
    left_out: tuple[TenantId, ...]  # that were erased since
    staying: tuple[TenantId, ...]  # that are there, and that it does not concern
    is_known: bool  # whether the audit tells all that has happened since
    files: Mapping[str, bool]  # the others in it, and whether they are put back
    keys: KeysPlan | None  # none if keys are not touched

    @property
    def to_replace(self) -> tuple[Replacement, ...]:
        """Those that another database gives way to."""
        return tuple(it for it in self.replacements if it.is_there and not it.is_done)

    @property
    def unsure(self) -> tuple[TenantId, ...]:
        """Those that come back although nobody can know whether they were erased since."""
        others = (it for it in self.replacements if it.part.tenant != DEFAULT_TENANT)
        return tuple(it.part.tenant for it in others if not (it.is_there or self.is_known))


def replacement(part: TenantPart, path: Path, draft: Path) -> Replacement:
    """What it would be to put a draft at a path."""
    is_there = path.exists()
    is_done = is_there and _is_same(part, path)
    known = erasures_at(draft)
    since = erasures_at(path) if is_there else {}
    return Replacement(
        part=part,
        path=path,
        draft=draft,
        is_there=is_there,
        is_done=is_done,
        size=size_of(path),
        now=contents_at(path) if is_there else None,
        erased=tuple(erasure for id_, erasure in since.items() if id_ not in known),
    )


def _is_same(part: TenantPart, path: Path) -> bool:
    """Whether the file is the archive's, to the byte; looked at before anybody opens it."""
    if files_of(path) != [path] or path.stat().st_size != part.member.size:
        return False
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == part.member.sha256
