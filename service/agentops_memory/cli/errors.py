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
READER_GONE = 141  # 128 and SIGPIPE
TERMINATED = 143  # 128 and SIGTERM


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
    "NoDatabase": "Use --db for another file or --url for a service; `save` and `import` create "
    "the file.",
    "NoTenant": "`agentops-memory tenants list` shows the existing tenants, and `tenants "
    "create` adds one.",
    "FileRefused": "Use another file, or check the permissions of this one.",
    "FileThere": "--force overwrites it.",
    "NotWhole": "Try again: the data received is not an export. No existing file was changed.",
    "Damaged": "`agentops-memory doctor` shows the extent of the damage, and `agentops-memory "
    "restore` restores a backup.",
    "NoService": "`agentops-memory serve` starts it; --url selects another service.",
    "ArchiveThere": "--force overwrites it.",
    "BackupRefused": "Choose another place with --to, or free some space there.",
    "SnapshotRefused": "Nothing was changed. A damaged database can be restored from an archive.",
    "ArchiveRefused": "Nothing was changed. Take another archive.",
    "DatabaseThere": "--force replaces it, and keeps the old files next to it.",
    "StillOpen": "Close the programs that have it open (agents, a shell) and run this again; "
    "databases already restored are skipped.",
    "InUse": "Stop that service, and run this again.",
    "RestoreRefused": "Fix the problem named above; `restore` can be run again.",
    "RedactionFileRefused": "Fix it, or choose another with --redaction-file.",
    "SealFileRefused": "Restore the file from a copy, or choose another with --seal-file.",
    "StartRefused": "Is it the right file? Starting the service on it upgrades it, or shows "
    "what is wrong.",
    "SettingRefused": "`agentops-memory serve --help-all` describes every setting.",
    "Misconfigured": "--url (or MEMORY_URL) looks like http://127.0.0.1:7437; MEMORY_API_KEY "
    "holds nothing but a key.",
    "Unreachable": "Check --url (or MEMORY_URL); without it the database file is used.",
    "UnexpectedAnswer": "Check --url (or MEMORY_URL): another program may be answering there.",
    "Unauthenticated": "Put a key into MEMORY_API_KEY, or its file into --key-file; "
    "`agentops-memory keys create` creates one.",
    "Denied": "`agentops-memory keys list` shows what each key may do.",
    "NotFound": "`agentops-memory list` shows ids, `agentops-memory restore` brings back "
    "deleted memories, and `agentops-memory projects list` shows projects.",
    "Conflict": "`agentops-memory history` shows what is stored now.",
    "TooLarge": "The service's MEMORY_MAX_UPLOAD sets the limit; working on the file directly "
    "has none.",
    "TooMany": "Wait a few seconds, and try again.",
    "Invalid": "The command's --help lists its arguments and options.",
    "OverQuota": "Erase what is not needed, or raise MEMORY_TENANT_QUOTA.",
    "Failed": "The service's log shows the reason.",
    "Unavailable": "Try again in a moment; nothing was stored.",
    "Exception": "The command's --help lists its arguments and options.",
}
OF_STARTS = {
    "SettingRefused": "`agentops-memory serve --help-all` describes every setting.",
    "InUse": "`agentops-memory status` shows what is running; --db selects another file.",
    "Exception": "`agentops-memory doctor` checks the settings and files, and says what to do.",
}
MAY_BE_DONE = "It may have been done all the same; trying again creates no duplicate."
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
    kinds = _kinds(error)
    if is_start:
        hint = next(OF_STARTS[kind] for kind in kinds if kind in OF_STARTS)
        if re.match("MEMORY_LISTEN: .* cannot be used: ", str(error)):
            hint = f"`{NAME} status` shows what answers there; --listen selects another address."
        click.secho(f"{NAME}: {error}", err=True, fg="red")
        click.echo(f"Hint: {hint}", err=True)
        sys.exit(REFUSED)
    if not has_hint:
        click.echo(f"{NAME}: {error}", err=True)
        sys.exit(REFUSED)
    hint = next(HINTS[kind] for kind in kinds if kind in HINTS)
    if getattr(error, "may_be_done", False):
        hint = MAY_BE_DONE
    click.secho(f"{NAME}: {one_line(str(error)[:LONGEST])}", err=True, fg="red")
    click.echo(f"Hint: {hint}", err=True)
    sys.exit(REFUSED if PASSING.isdisjoint(kinds) else LATER)


def _kinds(error: Exception) -> list[str]:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Damaged):
            return [Damaged.__name__]
        cause = cause.__cause__
    return [kind.__name__ for kind in type(error).__mro__]
