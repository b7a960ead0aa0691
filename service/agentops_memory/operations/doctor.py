"""Examines a whole service: its settings, its files, and the database of each tenant.

The permissions and types of files are checked before their content.
"""

import os
import platform
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from .. import __version__
from ..backend import registry_of
from ..engine.engine import noop
from ..engine.files import file_system, is_network, leftovers, opened
from ..errors import Refusal, SettingRefused, Unavailable, sentence_of
from ..http.gate import must_have_keys
from ..light import dataclass, replace
from ..memory.access import DEFAULT_TENANT, KeyRegistry, TenantId
from ..memory.damage import GARBAGE, Finding, Status, failed, note, ok, warn
from ..memory.redactor import exceptions_in
from ..settings import Settings, unknown_variables
from ..sqlite import dialect as sqlite_dialect
from ..sqlite.examination import check_database
from ..sqlite.open_files import REMEDY, copies_of
from ..sqlite.repair import Subject
from ..sqlite.tenants import tenant_file, tenants_of
from .backup import are_on_one_disk, newest, trouble_of
from .files.keys import entry_of
from .files.seal import SealFile
from .files.service_lock import holder

LOW_SPACE = 100 * 1024 * 1024  # free bytes below which an operator should act
NO_SPACE = 1024 * 1024  # free bytes below which a large write fails
FEW_INODES = 1000  # free inodes below which an operator should act
IDLE = timedelta(hours=1)  # time without a write after which a draft counts as left over
MIB = 1024 * 1024
PUBLIC = "Every user of this machine can read {}."
RESTRICTS = "`agentops-memory doctor --fix` restricts it, like `chmod o-rwx`"
SUFFIXES = ("-wal", "-shm", "-journal")  # of the files that SQLite keeps next to a database
Check = Callable[[], Iterable[Finding]]
REMEDIES = {
    "keys": "Restore the key file from a copy; until then no one has access.",
    "redaction": "Fix it or move it away; otherwise the next start is refused.",
    "seal": "Restore the file from a copy; until then confidential values cannot be read.",
}
"""By the code of a check: the remedy if the check is refused, as its file cannot be used."""


def check_file(path: Path) -> Finding:
    sentence = ""
    remedy = "Check the path (--db, MEMORY_DB_PATH), the volume and the user."
    try:
        status = path.stat()
    except FileNotFoundError:
        sentence = f"There is no database at {path}; starting the service creates one."
        if path.is_symlink():
            sentence = f"{path} is a broken symbolic link."
    except OSError as error:
        sentence = f"{path} cannot be read: {error.strerror}."
    else:
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            sentence = f"{path} is {kind}."
        elif not os.access(path, os.R_OK):
            sentence = f"{path} cannot be read by the user {os.geteuid()}."
        elif status.st_nlink > 1:
            sentence = f"{path} has {status.st_nlink} names (hard links)."
            remedy = f"{REMEDY} The next start removes one that a killed restore left behind."
    for file in () if sentence else _sqlite_files(Path(os.path.realpath(path))):
        with suppress(FileNotFoundError):  # SQLite has just removed it
            if not stat.S_ISREG(file.lstat().st_mode):
                sentence = f"{file} is not a regular file, as SQLite's own file there always is."
                remedy = "Another program put it there: stop the service and move it away."
                break
    return failed("file", sentence, remedy) if sentence else ok("file", f"{path} exists.")


def check_access(path: Path) -> Iterator[Finding]:
    """Check the permissions of a database file and the files next to it."""
    files = [path, *_sqlite_files(path)]
    # Others can read a file if its mode and the mode of the real folder allow it.
    is_passable = os.stat(os.path.realpath(path.parent)).st_mode & stat.S_IXOTH  # noqa: PTH116
    public = [file for file in files if is_passable and _is_public(file)]
    fine = ok("mode", f"No other user can read {path.name}.")
    fix = partial(close_to_others, public)
    yield warn("mode", PUBLIC.format(path), f"{RESTRICTS}.", fix=fix) if public else fine
    read_only = [str(it) for it in (path.parent, *files) if not os.access(it, os.W_OK)]
    fine = ok("folder", "The file and its folder are writable.")
    problem = f"The user {os.geteuid()} cannot write to {', '.join(read_only)}."
    remedy = "If the service runs as that user, make it the owner of the folder: `chown -R`."
    yield warn("folder", problem, remedy) if read_only else fine
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and journal.stat().st_size:
        problem = f"{journal} belongs to an unfinished transaction; these findings are about"
        remedy = "Keep both files together: starting the service rolls the transaction back."
        yield warn("journal", f"{problem} a file in the middle of it.", remedy)
    copies = [*copies_of(path), *leftovers(path.parent)]  # killed processes leave some
    if not copies:
        yield ok("copies", "There are no old copies.")
        return
    names = ", ".join(file.name for file in copies)
    oldest = datetime.fromtimestamp(min(file.stat().st_mtime for file in copies), UTC)
    problem = f"{names}: copies that still contain what was erased after they were made"
    remedy = "Remove them when you no longer need to go back."
    yield note("copies", f"{problem} ({oldest:%Y-%m-%d} or later).", remedy)


def check_disk(path: Path) -> Iterator[Finding]:
    kind, status = file_system(path), os.statvfs(path.parent)
    if kind is not None and is_network(kind):
        problem = f"{path.parent} is on a network file system ({kind}), where two machines can"
        remedy = "Put it on a disk of this machine; the service does not start there unless"
        remedy = f"{remedy} MEMORY_ALLOW_NETWORK_FS=1."
        yield warn("file-system", f"{problem} damage a database.", remedy)
    elif status.f_flag & os.ST_RDONLY:
        problem = f"The file system of {path.parent} is read-only."
        remedy = "Mount it writable; the kernel log shows whether an error made it read-only."
        yield failed("file-system", problem, remedy)
    else:
        yield ok("file-system", f"The file system is {kind or 'of an unknown type'}.")
    free, inodes = status.f_bavail * status.f_frsize, status.f_favail
    has_inodes = status.f_files > 0  # some file systems count none
    room = f"There are {free / MIB:,.0f} MiB free, and {inodes:,} inodes."
    if free >= LOW_SPACE and (inodes >= FEW_INODES or not has_inodes):
        yield ok("space", room)
    else:
        is_full = free < NO_SPACE or (has_inodes and inodes == 0)
        remedy = "Free some space or enlarge the disk: writes that do not fit are refused with 503."
        yield (failed if is_full else warn)("space", room, remedy)


def _sqlite_files(path: Path) -> list[Path]:
    files = (path.with_name(f"{path.name}{suffix}") for suffix in SUFFIXES)
    return [file for file in files if os.path.lexists(file)]


def close_to_others(files: Iterable[Path]) -> str:
    """Remove the permissions of other users from these files; return a sentence that says so."""
    for file in files:
        with opened(file, os.O_NOFOLLOW) as descriptor:
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~stat.S_IRWXO)
    return f"Other users can no longer read {', '.join(file.name for file in files)}."


def check_keys(keys: KeyRegistry, now: datetime, file: Path | None = None) -> Iterator[Finding]:
    if file is not None:
        yield from _check_privacy("keys", file)
    ring = keys.ring()
    keys.require_kept(ring)
    working = [key for key in ring.keys.values() if key.revoked_at is None]
    if not ring.keys:
        yield ok("keys", "No key has been created, or all were reset.")
    elif working:
        yield ok("keys", f"Working keys: {len(working)} of {len(ring.keys)}.")
    else:
        remedy = "`agentops-memory keys create --name NAME --role admin` creates one."
        yield warn("keys", "Every key is revoked, so no one has access.", remedy)
    for key in working:
        name = f"{key.id} ({key.name})"
        if not any(secret.is_valid_at(now) for secret in key.secrets):
            remedy = f"`agentops-memory keys rotate {key.id}` gives it a new one."
            yield warn("keys", f"No secret of the key {name} works any more.", remedy)


def check_redaction(path: Path) -> Iterator[Finding]:
    """Check the file of exceptions from redaction, which is optional."""
    exceptions_in(path)
    yield ok("redaction", "The redaction file is readable, or does not exist.")


def check_seal(path: Path, now: datetime) -> Iterator[Finding]:
    """Check the keys of confidential values; there need not be any."""
    yield from _check_privacy("seal", path)
    count = len(SealFile(path, lambda: now).keys())
    yield ok("seal", f"The file is readable; keys: {count:,}." if count else "There is no key.")


def check_audit(path: Path) -> Iterator[Finding]:
    yield from _check_privacy("audit", path)
    broken = 0
    try:
        with suppress(FileNotFoundError), opened(path) as file:
            lines = os.fdopen(file, "rb", closefd=False)
            broken = sum(not entry_of(line) for line in lines)
    except OSError as error:
        problem = f"The audit file {path} cannot be read: {error.strerror}."
        remedy = "Give it to the user of the service: keys cannot be changed without it."
        yield failed("audit", problem, remedy)
        return
    problem = f"{broken:,} lines of {path} are damaged: a full disk or a crash cut them short, or"
    remedy = "Leave them: they are evidence. New entries go on lines of their own."
    fine = ok("audit", "Every line is intact.")
    yield warn("audit", f"{problem} someone changed them.", remedy) if broken else fine


def _check_privacy(code: str, path: Path) -> Iterator[Finding]:
    if _is_public(path):
        remedy = f"{RESTRICTS}. A mounted secret gets its mode from `defaultMode`."
        fix = None if path.is_symlink() else partial(close_to_others, [path])
        yield warn(code, PUBLIC.format(path), remedy, fix=fix)


def _is_public(path: Path) -> bool:
    """Whether it is a regular file that its mode opens to every user."""
    with suppress(OSError):
        mode = path.stat().st_mode
        return stat.S_ISREG(mode) and mode & stat.S_IRWXO != 0
    return False


def check_environment(environment: Mapping[str, str]) -> Iterator[Finding]:
    unknown = unknown_variables(environment)
    for name, meant in unknown.items():
        sentence = f"{name} is not a setting and is ignored."
        if meant:
            yield warn("environment", sentence, f"Did you mean {meant}?")
        else:
            yield note("environment", sentence, "docs/configuration.md lists all settings.")
    if not unknown:
        yield ok("environment", "No unknown variables.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    settings: Settings
    environment: Mapping[str, str]
    now: datetime
    tenant: TenantId | None = None  # all of them
    is_thorough: bool = False


def findings_of(
    context: DoctorContext, progress: Callable[[int, int], None] = noop
) -> list[Finding]:
    """Return all findings, first about the service as a whole. Changes and raises nothing.

    `progress` is called with the number of finished parts, and of all: checks, and tenants.
    """
    shared, tenants, findings = _shared(context), _tenants(context), list[Finding]()
    total = len(shared) + len(tenants)
    for done, (code, check) in enumerate(shared.items(), start=1):
        findings += _safely(code, check)
        progress(done, total)
    for done, tenant in enumerate(tenants, start=len(shared) + 1):
        of_tenant = _safely("file", partial(_check_tenant, context, tenant))
        findings += [replace(it, tenant=tenant) for it in of_tenant]
        progress(done, total)
    return findings


def apply_fixes(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Apply each available fix; yield its finding as ok, or with the reason why the fix failed."""
    for finding in findings:
        if finding.fix is None:
            continue
        try:
            yield replace(finding, status=Status.OK, sentence=finding.fix(), remedy="", fix=None)
        except (Refusal, OSError) as error:
            sentence = f"{finding.sentence} Not fixed: {sentence_of(error)}"
            yield replace(finding, sentence=sentence)


def _shared(context: DoctorContext) -> dict[str, Check]:
    settings, keys = context.settings, registry_of(context.settings)
    checks: dict[str, Check] = {
        "program": _check_program,
        "environment": lambda: check_environment(context.environment),
        "redaction": lambda: check_redaction(settings.redaction_file),
        "seal": lambda: check_seal(settings.seal_file, context.now),
        "keys": lambda: check_keys(keys, context.now),
        "auth": lambda: _check_auth(settings, keys),
    }
    if url := settings.database_url:
        from ..postgresql.tenants import check_server  # noqa: PLC0415 - an extra

        return {"database": lambda: check_server(url), **checks}

    def check_holder() -> Iterator[Finding]:
        service = holder(settings.db_path)
        yield ok("served", f"It is served by {service}." if service else "No service has it open.")

    folder = settings.db_path.parent
    return checks | {
        "served": check_holder,
        "keys": lambda: check_keys(keys, context.now, settings.keys_file),
        "audit": lambda: check_audit(settings.audit_file),
        "file-system": lambda: check_disk(settings.db_path) if folder.is_dir() else (),
        "backup": lambda: _check_backups(settings, context.now),
    }


def _safely(code: str, check: Check) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except (OSError, Refusal, *GARBAGE) as error:
        sentence = f"It cannot be checked: {sentence_of(error)}"
        remedy = "Run this as the service's user, on the machine that has its files."
        if isinstance(error, Refusal) and code in REMEDIES:
            sentence, remedy = str(error), REMEDIES[code]
        findings.append(failed(code, sentence, remedy))
    return findings


def _tenants(context: DoctorContext) -> list[TenantId]:
    if context.tenant is not None:
        return [context.tenant]
    settings, others = context.settings, list[TenantId]()
    with suppress(OSError, Refusal):
        if settings.database_url:
            from ..postgresql import connection as pg  # noqa: PLC0415 - an extra

            with pg.control(settings.database_url) as connection:
                others = pg.tenants(connection)
        else:
            others = tenants_of(settings.db_path)
    return list(dict.fromkeys([DEFAULT_TENANT, *others]))


def _check_tenant(context: DoctorContext, tenant: TenantId) -> Iterator[Finding]:
    settings = context.settings
    if settings.database_url:
        from ..postgresql.tenants import check_schema  # noqa: PLC0415 - an extra

        yield from check_schema(settings.database_url, tenant)
        return
    path = tenant_file(settings.db_path, tenant)
    finding = check_file(path)
    yield finding
    if finding.status is not Status.OK:
        return
    path = Path(os.path.realpath(path))  # SQLite resolves links and keeps its files next to this
    yield from check_access(path)
    subject = Subject(
        tenant=tenant, path=path, now=context.now,
        sealer=SealFile(settings.seal_file, lambda: context.now).sealer,
        quota=settings.tenant_quota, is_thorough=context.is_thorough,
    )  # fmt: skip
    yield from check_database(subject)


def _check_program() -> Iterator[Finding]:
    versions = (
        f"agentops-memory {__version__}, Python {platform.python_version()}, SQLite "
        f"{sqlite3.sqlite_version}."
    )
    if missing_feature := sqlite_dialect.lack():
        remedy = "Use a Python whose SQLite supports it, such as the one in the image."
        yield failed("program", f"{versions} {missing_feature}", remedy)
    else:
        yield ok("program", versions)


def _check_auth(settings: Settings, keys: KeyRegistry) -> Iterator[Finding]:
    ring = keys.ring()
    try:
        keys.require_kept(ring)
        must_have_keys(ring, settings.auth, settings.listen.host)
    except (Unavailable, SettingRefused) as refusal:
        remedy = "`agentops-memory keys create --name NAME --role admin` creates a key."
        yield failed("auth", f"The service would refuse to start. {refusal}", remedy)
        return
    sentence = f"No key exists: anyone who can reach {settings.listen} has full access."
    remedy = "Create a key to require one: `agentops-memory keys create`."
    fine = ok("auth", "Access requires a key.")
    yield fine if ring.was_ever_used else note("auth", sentence, remedy)


def _check_backups(settings: Settings, now: datetime) -> Iterator[Finding]:
    folder = settings.backup_dir
    if folder is None or not settings.backup_every:
        yield ok("backup", "Automatic backups are off.")
        return
    mount = (
        "Mount it, and make the service's user its owner; the service then makes a backup itself."
    )
    try:
        backup = newest(folder, now)
        if not os.access(folder, os.W_OK | os.X_OK):
            yield warn("backup", f"The user {os.geteuid()} cannot write to {folder}.", mount)
        elif trouble := trouble_of(backup, settings.backup_every, now):
            remedy = "Search the log of the service for `backup`."
            yield warn("backup", trouble, remedy)
        else:
            yield ok("backup", "The newest backup is recent enough.")
        if are_on_one_disk(folder, settings.db_path):
            problem = f"{folder} is on the same disk as the database, and would be lost with it."
            yield warn("backup", problem, "Mount another disk there.")
    except OSError as error:
        yield warn("backup", f"{error.filename or folder} cannot be read: {error.strerror}.", mount)
