"""What the files of a service are found to be, before anything is read in them."""

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from glob import iglob
from pathlib import Path
from typing import TypeVar

from ..engine.files import file_system, is_network, leftovers, opened, remove_leftovers
from ..errors import Refusal
from ..memory.damage import Finding, failed, note, ok, warn
from ..memory.keys import KeyRegistry
from ..sqlite.open_files import REMEDY, copies_of, draft_of
from .files.redaction import RedactionFile
from .files.seals import SealFile

LITTLE = 100 * 1024 * 1024  # bytes free, below which somebody should look
NOTHING = 1024 * 1024  # bytes free, below which a large write fails
FEW = 1000  # inodes free
QUIET = timedelta(hours=1)  # in which nobody wrote into what is taken for left over
OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IXOTH
MIB = 1024 * 1024
MAKE_ROOM = "Free some space or enlarge the disk: writes that do not fit are refused with 503."
T = TypeVar("T")

BESIDE = ("-wal", "-shm", "-journal")  # of SQLite


def check_file(path: Path) -> Finding:
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            return _no_file(f"{path} is a broken symbolic link.")
        return _no_file(f"There is no database at {path}; starting the service creates one.")
    except OSError as error:
        return _no_file(f"{path} cannot be read: {error.strerror}.")
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        return _no_file(f"{path} is {what}.")
    if not os.access(path, os.R_OK):
        return _no_file(f"{path} cannot be read by the user {os.geteuid()}.")
    return _check_names(path, status.st_nlink)


def _check_names(path: Path, number: int) -> Finding:
    if number > 1:
        return failed(
            "file",
            f"{path} has {number} names (hard links).",
            f"{REMEDY} The next start removes one that a killed restore left behind.",
        )
    real = Path(os.path.realpath(path))
    for file in _beside(real):
        with suppress(FileNotFoundError):  # SQLite has just taken it away
            if not stat.S_ISREG(file.lstat().st_mode):
                return failed(
                    "file",
                    f"{file} is not a regular file, as SQLite's own file there always is.",
                    "Another program put it there: stop the service and move it away.",
                )
    return ok("file", f"{path} exists.")


def check_access(path: Path) -> Iterator[Finding]:
    """Who else may read it, whether it can be written, and what lies beside it."""
    files = [path, *_beside(path)]
    if open_to_others := [file for file in files if _is_open_to_others(file)]:
        yield warn(
            "mode",
            f"Every user of this machine can read {path}.",
            "`agentops-memory doctor --fix` restricts it, like `chmod o-rwx`.",
            fix=partial(close_to_others, open_to_others),
        )
    else:
        yield ok("mode", f"No other user can read {path.name}.")
    if shut := [it for it in (path.parent, *files) if not os.access(it, os.W_OK)]:
        yield warn(
            "folder",
            f"The user {os.geteuid()} cannot write to {', '.join(map(str, shut))}.",
            "If the service runs as that user, make it the owner of the folder: `chown -R`.",
        )
    else:
        yield ok("folder", "The file and its folder are writable.")
    owners = sorted({file.stat().st_uid for file in (path, *_beside(path))})
    if len(owners) > 1:
        yield warn(
            "owner",
            f"{path} and the files beside it belong to several users: "
            f"{', '.join(map(str, owners))}.",
            "Give all of them to the user of the service: `chown`.",
        )
    else:
        yield ok("owner", f"It belongs to the user {owners[0]}.")
    yield _check_open_files(path)
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and journal.stat().st_size:
        yield warn(
            "journal",
            f"{journal} belongs to an unfinished transaction; these findings are about "
            "a file in the middle of it.",
            "Keep both files together: starting the service rolls the transaction back.",
        )
    yield _check_copies(path)


def check_disk(path: Path) -> Iterator[Finding]:
    kind, status = file_system(path), os.statvfs(path.parent)
    if kind is not None and is_network(kind):
        yield warn(
            "file-system",
            f"{path.parent} is on a network file system ({kind}), where two machines can "
            "damage a database.",
            "Put it on a disk of this machine; the service does not start there unless "
            "MEMORY_ALLOW_NETWORK_FS=1.",
        )
    elif status.f_flag & os.ST_RDONLY:
        yield failed(
            "file-system",
            f"The file system of {path.parent} is read-only.",
            "Mount it writable; the kernel log shows whether an error made it read-only.",
        )
    else:
        yield ok("file-system", f"The file system is {kind or 'of an unknown type'}.")
    free, inodes = status.f_bavail * status.f_frsize, status.f_favail
    has_inodes = status.f_files > 0  # some file systems count none
    room = f"There are {free / MIB:,.0f} MiB free, and {inodes:,} inodes."
    if free >= LITTLE and (inodes >= FEW or not has_inodes):
        yield ok("space", room)
    else:
        is_out = free < NOTHING or (has_inodes and inodes == 0)
        yield (failed if is_out else warn)("space", room, MAKE_ROOM)


def check_leftovers(path: Path, more: Iterable[Path] = ()) -> Finding:
    """Drafts of processes that were killed: those that nobody has open, nor wrote an hour long."""
    files = [file for file in (*_drafts(path), *more) if _is_left_over(file)]
    drafts = [*files, *leftovers(path.parent)]
    if not drafts:
        return ok("leftovers", "No killed process left files behind.")
    names = ", ".join(file.name for file in drafts)

    def remove() -> str:
        unused = [file for file in files if _is_left_over(file)]
        for file in unused:
            file.unlink(missing_ok=True)
        names = ", ".join(file.name for file in (*unused, *remove_leftovers(path.parent)))
        return f"Removed {names or 'nothing: the files are in use again'}."

    return warn(
        "leftovers",
        f"A killed process left {names} in {path.parent}.",
        "`agentops-memory doctor --fix` removes what it left.",
        fix=remove,
    )


def _no_file(sentence: str) -> Finding:
    remedy = "Check the path (--db, MEMORY_DB_PATH), the volume and the user."
    return failed("file", sentence, remedy)


def _check_open_files(path: Path) -> Finding:
    every = {f"{path}{suffix} (deleted)": f"{path.name}{suffix}" for suffix in ("", *BESIDE)}
    names = map(str, _of_open_files(Path.readlink))
    gone = sorted({every[name] for name in names if name in every})
    if not gone:
        return ok("open-files", "No process has a removed or replaced file open.")
    return failed(
        "open-files",
        f"A process has {' and '.join(gone)} open after it was removed or replaced.",
        "Restart the service with SIGTERM; until then it refuses writes that it cannot keep.",
    )


def _check_copies(path: Path) -> Finding:
    drafts = _drafts(path)
    copies = [file for file in copies_of(path) if file not in drafts]
    if not copies:
        return ok("copies", "There are no old copies.")
    oldest = datetime.fromtimestamp(min(file.stat().st_mtime for file in copies), UTC)
    return note(
        "copies",
        f"{', '.join(file.name for file in copies)}: copies that still contain what "
        f"was erased after they were made ({oldest:%Y-%m-%d} or later).",
        "Remove them when you no longer need to go back.",
    )


def _beside(path: Path) -> list[Path]:
    files = (path.with_name(f"{path.name}{suffix}") for suffix in BESIDE)
    return [file for file in files if os.path.lexists(file)]


def _drafts(path: Path) -> list[Path]:
    """Where a copy is made before an upgrade: under these names nobody else keeps anything."""
    draft = draft_of(path)
    return [draft, *_beside(draft)]


def _is_left_over(file: Path) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    is_quiet = time.time() - status.st_mtime > QUIET.total_seconds()
    return (
        stat.S_ISREG(status.st_mode)
        and is_quiet
        and not any(os.path.samestat(it, status) for it in _of_open_files(Path.stat))
    )


def _of_open_files(look: Callable[[Path], T]) -> Iterator[T]:
    # Not by pathlib, which raises when a process ends while it is looked at.
    for descriptor in iglob("/proc/[0-9]*/fd/*"):  # noqa: PTH207
        with suppress(OSError):
            yield look(Path(descriptor))


def _is_open_to_others(file: Path) -> bool:
    """Whether its mode lets others in, and its folder lets them come so far."""
    mode = file.lstat().st_mode
    folder = os.stat(os.path.realpath(file.parent)).st_mode  # noqa: PTH116 - of the real folder
    return stat.S_ISREG(mode) and bool(mode & OTHERS and folder & stat.S_IXOTH)


def close_to_others(files: Iterable[Path]) -> str:
    """Let nobody but the owner and the group read these files; what was done."""
    for file in files:
        with opened(file, os.O_NOFOLLOW) as descriptor:
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~OTHERS)
    return f"Other users can no longer read {', '.join(file.name for file in files)}."


SOON = timedelta(days=7)  # in which an old secret of a key ends
LONGEST_AUDIT = 64 * 1024 * 1024  # bytes at the end of the audit file that are looked at


def check_keys(keys: KeyRegistry, now: datetime, file: Path | None = None) -> Iterator[Finding]:
    if file is not None:
        yield from _check_privacy("keys", file)
    try:
        ring = keys.ring()
        keys.require_kept(ring)
    except Refusal as refusal:
        remedy = "Restore the key file from a copy; until then no one has access."
        yield failed("keys", str(refusal), remedy)
        return
    working = [key for key in ring.keys.values() if key.revoked_at is None]
    if not ring.keys:
        yield ok("keys", "No key has been created, or all were reset.")
    elif working:
        yield ok("keys", f"{len(working)} of {len(ring.keys)} keys work.")
    else:
        yield warn(
            "keys",
            "Every key is revoked, so no one has access.",
            "`agentops-memory keys create --name NAME --role admin` creates one.",
        )
    for key in working:
        if not any(secret.works_at(now) for secret in key.secrets):
            yield warn(
                "keys",
                f"No secret of the key {key.id} ({key.name}) works any more.",
                f"`agentops-memory keys rotate {key.id}` gives it a new one.",
            )
            continue
        ends = [it.until for it in key.secrets if it.until and now < it.until < now + SOON]
        if ends:
            yield note(
                "keys",
                f"The old secret of the key {key.id} ({key.name}) expires at "
                f"{min(ends):%Y-%m-%d %H:%M} (UTC).",
                "Its users need the new secret by then.",
            )


def check_redaction(path: Path) -> Iterator[Finding]:
    """What is not taken for a secret; nobody need have written it."""
    try:
        RedactionFile(path).read()
    except Refusal as refusal:
        remedy = "Fix it or move it away; otherwise the next start is refused."
        yield failed("redaction", str(refusal), remedy)
    else:
        yield ok("redaction", "The redaction file is readable, or does not exist.")


def check_seal(path: Path, now: datetime) -> Iterator[Finding]:
    """The keys of confidential values, of which nobody need have stored one."""
    yield from _check_privacy("seal", path)
    try:
        count = len(SealFile(path, lambda: now).keys().keys)
    except Refusal as refusal:
        remedy = "Restore the file from a copy; until then confidential values cannot be read."
        yield failed("seal", str(refusal), remedy)
    else:
        yield ok(
            "seal",
            f"The file is readable, and has {count:,} keys." if count else "There is no key.",
        )


def check_audit(path: Path) -> Iterator[Finding]:
    yield from _check_privacy("audit", path)
    try:
        broken = _broken_lines(path)
    except OSError as error:
        yield failed(
            "audit",
            f"The audit file {path} cannot be read: {error.strerror}.",
            "Give it to the user of the service: keys cannot be changed without it.",
        )
        return
    if broken:
        yield warn(
            "audit",
            f"{broken:,} lines of {path} are damaged: a full disk or a crash cut them short, or "
            "someone changed them.",
            "Leave them: they are evidence. New entries go on lines of their own.",
        )
    else:
        yield ok("audit", "Every line is intact.")


def _check_privacy(code: str, path: Path) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        yield warn(
            code,
            f"Every user of this machine can read {path}.",
            "`agentops-memory doctor --fix` restricts it, like `chmod o-rwx`. A mounted "
            "secret gets its mode from `defaultMode`.",
            fix=None if path.is_symlink() else partial(close_to_others, [path]),
        )


def _broken_lines(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    with os.fdopen(descriptor, "rb") as file:
        skipped = max(os.fstat(descriptor).st_size - LONGEST_AUDIT, 0)
        if skipped:
            file.seek(skipped)
            file.readline()
        broken = 0
        for line in file:
            try:
                broken += not isinstance(json.loads(line), dict)
            except (ValueError, RecursionError):
                broken += 1
        return broken
