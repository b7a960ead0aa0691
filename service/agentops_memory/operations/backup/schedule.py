"""A folder of archives that are made by schedule: the newest of them, and those that may go."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from .archive import Archive, ArchiveRefused
from .backup import STAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptArchive:
    """An archive of all tenants that can be opened."""

    made_at: datetime
    path: Path
    size: int  # bytes
    is_damaged: bool  # of values in it that is known


def path_in(folder: Path, now: datetime) -> Path:
    """Where an archive of now lies; its folder may be missing."""
    return folder / now.strftime(STAMP)


def newest(folder: Path, now: datetime) -> KeptArchive | None:
    """The newest archive until now; an OSError if the folder cannot be looked at.

    One that is damaged, or of some tenants only, does not count. Nor does one with a
    time that is yet to come: after a clock that was wrong, none would be made for long.
    """
    return next(_kept(folder, now), None)


def prune(folder: Path, keep: int, now: datetime) -> list[Path]:
    """Remove what is older than the newest archives, of which so many stay; what is gone then.

    The newest without damaged values stays, too, however old it is. Archives that are not whole
    go once they are older. Whatever has another name than ours stays, and so does what cannot be
    read, or is of some tenants only.
    """
    staying = list(islice(_kept(folder, now), keep))
    if len(staying) < keep:
        return []
    oldest = staying[-1].made_at
    sound = next((kept.path for kept in _kept(folder, now) if not kept.is_damaged), None)
    older = (path for made_at, path in _dated(folder, now) if made_at < oldest and path != sound)
    gone = [path for path in older if _may_go(path)]
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def _kept(folder: Path, now: datetime) -> Iterator[KeptArchive]:
    """The archives that count, the newest first."""
    for made_at, path in _dated(folder, now):
        with suppress(ArchiveRefused, OSError), Archive.opened(path) as archive:
            manifest = archive.manifest
            if manifest.is_of_all:
                size, is_damaged = path.stat().st_size, bool(manifest.damaged)
                yield KeptArchive(made_at=made_at, path=path, size=size, is_damaged=is_damaged)


def _may_go(path: Path) -> bool:
    try:
        with Archive.opened(path) as archive:
            return archive.manifest.is_of_all
    except ArchiveRefused:
        return True
    except OSError:
        return False


def _dated(folder: Path, now: datetime) -> list[tuple[datetime, Path]]:
    """The files with names of ours until now, the newest first."""
    files = (path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    dated = ((_stamp(path.name), path) for path in files)
    return sorted(((at, path) for at, path in dated if at and at <= now), reverse=True)


def _stamp(name: str) -> datetime | None:
    """The time in the name of an archive; none in any other name."""
    with suppress(ValueError):
        made_at = datetime.strptime(name, STAMP).replace(tzinfo=UTC)
        if made_at.strftime(STAMP) == name:
            return made_at
    return None
