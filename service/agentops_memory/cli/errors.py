"""How a command ends when it cannot do its work: a sentence, a hint, and an exit code."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from agentops_memory_client.contract.errors import MemoryServiceError

from ..errors import Damaged, Refusal, SettingRefused
from .output import one_line

NAME = "agentops-memory"
LONGEST = 2000  # characters of a sentence: something else than the service may answer

REFUSED = 1
LATER = 3  # nobody answers, or it is busy: the same command may succeed later
INTERRUPTED = 130  # 128 and the number of the signal, as shells count
READER_GONE = 141
TERMINATED = 143


class CommandRefused(Exception):
    """A command cannot do its work; its text is a sentence."""


FAILURES = (MemoryServiceError, Refusal, SettingRefused, CommandRefused)
"""What ends a command with a sentence, wherever it is raised."""


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
    "NoService": "`agentops-memory serve` starts it; --url names another.",
    "ArchiveThere": "--force writes over it.",
    "BackupRefused": "Name another place with --to, or make room there.",
    "SnapshotRefused": "Nothing was changed. A database that is damaged is restored from an "
    "archive.",
    "ArchiveRefused": "Nothing was changed. Take another archive.",
    "DatabaseThere": "--force replaces it, and keeps what is there beside it.",
    "StillOpen": "End what has it open (agents, a shell) and repeat this: what is restored already "
    "is left alone.",
    "InUse": "End that service, and repeat this.",
    "RestoreRefused": "What is said above tells what is in the way; `restore` can be repeated.",
    "RedactionFileRefused": "Mend it, or name another with --redaction-file.",
    "SealFileRefused": "Put the file back from a copy, or name another with --seal-file.",
    "StartRefused": "Is it the right file? A service that is started on it brings it up to date, "
    "or says what is wrong.",
    "SettingRefused": "`agentops-memory serve --help-all` tells what each setting takes.",
    "Misconfigured": "--url (or MEMORY_URL) is like http://127.0.0.1:7437, and MEMORY_API_KEY a "
    "key alone.",
    "Unreachable": "See --url (or MEMORY_URL); without one the database file is used.",
    "UnexpectedAnswer": "See --url (or MEMORY_URL): something else may answer there.",
    "Unauthenticated": "Put a key into MEMORY_API_KEY, or name its file with --key-file; "
    "`agentops-memory keys create` makes one.",
    "Denied": "`agentops-memory keys list` tells what each key allows.",
    "NotFound": "`agentops-memory list` shows ids, `agentops-memory restore` brings back what was "
    "deleted, and `agentops-memory projects list` shows projects.",
    "Conflict": "`agentops-memory history` shows what is stored by now.",
    "TooLarge": "MEMORY_MAX_UPLOAD of the service is the limit; on the file itself there is none.",
    "TooMany": "Wait some seconds, and try again.",
    "Invalid": "The command's --help tells what it takes.",
    "OverQuota": "Erase what is not needed, or raise MEMORY_TENANT_QUOTA.",
    "Failed": "The service's log has the reason.",
    "Unavailable": "Try again in a moment; nothing was stored.",
    "Exception": "The command's --help tells what it takes.",
}
OF_STARTS = {
    "SettingRefused": "`agentops-memory serve --help-all` tells what each setting takes.",
    "InUse": "`agentops-memory status` tells what runs; --db names another file.",
    "Exception": "`agentops-memory doctor` looks at the settings and files, and says what to do.",
}
MAY_BE_DONE = "It may be done nevertheless; to try again doubles nothing."
PASSING = {"NotWhole", "Unreachable", "TooMany", "Unavailable"}


@contextmanager
def file_errors() -> Iterator[None]:
    """Inside, what the system says of a file is FileRefused; a reader that has left is not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sentence = f"{error.filename or 'A file'} cannot be used: {error.strerror}."
        raise FileRefused(str(error) if error.strerror is None else sentence) from error


def fail(error: Exception, *, has_hint: bool = True, is_start: bool = False) -> NoReturn:
    """End the program; without a hint the exit code does not tell whether to try again."""
    if is_start:
        click.secho(f"{NAME}: {error}", err=True, fg="red")
        click.echo(f"Hint: {_of_a_start(error)}", err=True)
        sys.exit(REFUSED)
    if not has_hint:
        click.echo(f"{NAME}: {error}", err=True)
        sys.exit(REFUSED)
    kinds = _kinds(error)
    hint = next(HINTS[kind] for kind in kinds if kind in HINTS)
    if getattr(error, "may_be_done", False):
        hint = MAY_BE_DONE
    click.secho(f"{NAME}: {one_line(str(error)[:LONGEST])}", err=True, fg="red")
    click.echo(f"Hint: {hint}", err=True)
    sys.exit(REFUSED if PASSING.isdisjoint(kinds) else LATER)


def _of_a_start(error: Exception) -> str:
    if re.match("MEMORY_LISTEN: .* cannot be used: ", str(error)):
        return "`agentops-memory status` tells what answers there; --listen names another address."
    return next(OF_STARTS[kind] for kind in _kinds(error) if kind in OF_STARTS)


def _kinds(error: Exception) -> list[str]:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Damaged):
            return [Damaged.__name__]
        cause = cause.__cause__
    return [kind.__name__ for kind in type(error).__mro__]
