"""Files of an archive, unpacked beside the place that they are for, and found to be good."""

import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from ..domain.errors import Refusal
from ..domain.model.access import TenantId
from ..files.audit import private_file
from ..files.drafts import drafts
from ..storage.sqlite.maintenance.snapshots import SnapshotRefused, examined
from ..storage.sqlite.schema.migrate import newest_format
from .archive_reading import Archive, ArchiveRefused, Tell, untold
from .manifest import Manifest, Member, TenantPart


class NoRoom(Refusal):
    """The disk has too little space for what is to be unpacked."""

    code = "restore_refused"


class Unpacking:
    """An archive on its way into drafts, which are gone when `held` ends."""

    def __init__(self, archive: Archive, held: ExitStack) -> None:
        self._archive = archive
        self._held = held
        self._folders: dict[Path, Path] = {}

    def files(self, near: Path) -> Mapping[str, Path]:
        """What is in the archive beside databases, by its names there."""
        members = self._archive.manifest.others
        self._require_room(near, sum(member.size for member in members))
        return {member.name: self._unpacked(member, near) for member in members}

    def databases(
        self, parts: Collection[TenantPart], places: Mapping[TenantId, Path], tell: Tell
    ) -> Mapping[TenantId, Path]:
        """The databases of these tenants, each beside its place; ArchiveRefused if one is bad.

        That is one of a newer format, and one that does not hold what the manifest says.
        """
        for part in parts:
            _require_known(part, self._archive.manifest)
        for part in parts:
            self._require_room(places[part.tenant], sum(it.member.size for it in parts))
        return {it.tenant: self._database(it, places[it.tenant], tell) for it in parts}

    def _database(self, part: TenantPart, place: Path, tell: Tell) -> Path:
        draft = self._unpacked(part.member, place, tell)
        try:
            found = examined(draft)
        except SnapshotRefused as refusal:
            raise ArchiveRefused(
                f"The database of the tenant {part.tenant} in the archive is damaged."
            ) from refusal
        expected = part.contents
        if (found.format, found.counts) != (expected.format, expected.counts):
            raise ArchiveRefused(
                f"The database of the tenant {part.tenant} holds something else than the archive's "
                "manifest says."
            )
        tell(part.member.size)
        return draft

    def _unpacked(self, member: Member, near: Path, tell: Tell = untold) -> Path:
        draft = self._folder(near) / member.name.replace("/", "-")
        with private_file(draft, os.O_WRONLY | os.O_EXCL) as file:
            with os.fdopen(os.dup(file), "wb") as into:
                self._archive.copy(member, into, tell)
            os.fsync(file)
        return draft

    def _folder(self, near: Path) -> Path:
        """A folder for drafts on the disk of that path."""
        there = _there(near)
        if there not in self._folders:
            self._folders[there] = self._held.enter_context(drafts(there))
        return self._folders[there]

    def _require_room(self, near: Path, needed: int) -> None:
        free = shutil.disk_usage(_there(near)).free
        if free < needed:
            raise NoRoom(
                f"What is in the archive needs {needed:,} bytes free in {_there(near)}; there are "
                f"{free:,}."
            )


def _require_known(part: TenantPart, manifest: Manifest) -> None:
    if part.contents.format > newest_format():
        raise ArchiveRefused(
            f"The database of the tenant {part.tenant} has format {part.contents.format}, made by "
            f"agentops-memory {manifest.program}; this one knows formats up to {newest_format()}."
        )


def _there(path: Path) -> Path:
    """The nearest folder above that there is."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())
