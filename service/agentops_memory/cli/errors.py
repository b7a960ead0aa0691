"""How a command ends when it cannot do its work: a sentence, a hint, and an exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from agentops_memory_client.contract.errors import MemoryServiceError

from ..domain.errors import Damaged, Refusal, SettingRefused
from .output import one_line
from .service_files import CommandRefused

LONGEST = 2000  # characters of what is told: something else than the service may answer

REFUSED = 1
LATER = 3  # nobody answers, or it is busy: the same command may succeed later
INTERRUPTED = 130  # 128 and the number of the signal, as shells count
READER_GONE = 141
TERMINATED = 143


class NoDatabase(CommandRefused):
    """A file that is read is not there."""


class NoTenant(CommandRefused):
    """There is no tenant of this name."""


class FileThere(CommandRefused):
    """A file would be written over."""


class FileRefused(CommandRefused):
    """A file of the user's cannot be read or written as it is."""


class NotWhole(CommandRefused):
    """An export ends early that has begun."""


class NoMcp(CommandRefused):
    """What speaks MCP is not installed."""


# By the name of the class, or of the nearest one above it.
HINTS = {
    "NoDatabase": "Name another file with --db or a service with --url; `save` and `import` make "
    "the file.",
    "NoTenant": "`agentops-memory tenants list` shows those that there are, and `tenants create` "
    "makes one.",
    "FileRefused": "Name another file, or see who may read and write this one.",
    "FileThere": "--force writes over it.",
    "NotWhole": "Try again: what has come is no export. A file that was named is as it was.",
    "Damaged": "`agentops-memory doctor` tells how far, and `agentops-memory restore` puts a "
    "backup in its place.",
    "NoMcp": "Install it into this program's environment: pip install 'agentops-memory[mcp]'",
    "ArchiveThere": "--force writes over it.",
    "BackupRefused": "Name another place with --to, or make room there.",
    "SnapshotRefused": "Nothing was changed. A database that is damaged is restored from an "
    "archive.",
    "ArchiveRefused": "Nothing was changed. Take another archive.",
    "NotInArchive": "`restore --dry-run` without --tenant shows those that it has.",
    "DatabaseThere": "--force replaces it, and keeps what is there beside it.",
    "StillOpen": "End what has it open (agents, a shell) and repeat this: what is restored already "
    "is left alone.",
    "RestoreRefused": "What is said above tells what is in the way; `restore` can be repeated.",
    "ReplaceRefused": "What is said above tells what is in the way; `restore` can be repeated.",
    "NoRoom": "Make room there, or name another database with --db.",
    "RedactionFileRefused": "Mend it, or name another with --redaction-file.",
    "StartRefused": "Is it the right file? A service that is started on it brings it up to date, "
    "or says what is wrong.",
    "SettingRefused": "`agentops-memory serve --help` tells what each setting takes.",
    "Misconfigured": "--url (or MEMORY_URL) is like http://127.0.0.1:7437, and MEMORY_API_KEY a "
    "key alone.",
    "Unreachable": "See --url (or MEMORY_URL); without one the database file is used.",
    "UnexpectedAnswer": "See --url (or MEMORY_URL): something else may answer there.",
    "Unauthenticated": "Put a key into MEMORY_API_KEY; `agentops-memory keys create` makes one.",
    "Denied": "`agentops-memory keys list` tells what each key allows.",
    "NotFound": "`agentops-memory search` shows the ids that there are; a --url names the service, "
    "not a page of it.",
    "Conflict": "`agentops-memory history` shows what is stored by now.",
    "TooLarge": "MEMORY_MAX_UPLOAD of the service is the limit; on the file itself there is none.",
    "TooMany": "Wait some seconds, and try again.",
    "Invalid": "The command's --help tells what it takes.",
    "OverQuota": "Erase what is not needed, or raise MEMORY_TENANT_QUOTA.",
    "Failed": "The service's log has the reason.",
    "Unavailable": "Try again in a moment; nothing was stored.",
    "Exception": "The command's --help tells what it takes.",
}
MAY_BE_DONE = "It may be done nevertheless; to try again doubles nothing."
PASSING = {"NotWhole", "Unreachable", "TooMany", "Unavailable"}


@contextmanager
def failures() -> Iterator[None]:
    """Inside, what goes wrong ends the program with a sentence, a hint and an exit code."""
    try:
        yield
    except (MemoryServiceError, Refusal, SettingRefused, CommandRefused) as error:
        fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(FileRefused(_sentence(error)))


def _sentence(error: OSError) -> str:
    """What the system says of a file, or what we do."""
    if error.strerror is None:
        return str(error)
    return f"{error.filename or 'A file'} cannot be used: {error.strerror}."


def fail(error: Exception) -> NoReturn:
    """End the program."""
    kinds = _kinds(error)
    hint = next(HINTS[kind] for kind in kinds if kind in HINTS)
    if getattr(error, "may_be_done", False):
        hint = MAY_BE_DONE
    sentence = one_line(str(error)[:LONGEST])
    click.secho(f"agentops-memory: {sentence}", err=True, fg="red")
    click.echo(f"Hint: {hint}", err=True)
    sys.exit(REFUSED if PASSING.isdisjoint(kinds) else LATER)


def _kinds(error: Exception) -> list[str]:
    """What it is, by name, from the nearest kind on; damage is that whatever it led to."""
    met: BaseException | None = error
    while met is not None:
        if isinstance(met, Damaged):
            return [Damaged.__name__]
        met = met.__cause__
    return [kind.__name__ for kind in type(error).__mro__]
