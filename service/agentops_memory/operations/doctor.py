"""The examination of a whole service: its settings, its files, and the database of each tenant."""

import os
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from .. import __version__
from ..backend import registry_of
from ..engine.engine import noop
from ..errors import Refusal, SettingRefused, Unavailable, sentence_of
from ..http.gate import must_have_keys
from ..light import dataclass, replace
from ..memory.access import DEFAULT_TENANT, TenantId
from ..memory.damage import GARBAGE, Finding, Status, failed, note, ok, warn
from ..memory.keys import KeyRegistry
from ..settings import Settings, UsableSettings, unknown_variables
from ..sqlite import connection as library
from ..sqlite.examination import CHECKS_OF_FILE, check_database
from ..sqlite.repair import Subject
from ..sqlite.tenants import MOST_OPEN, tenant_file, tenants_of, unnamed_in
from . import doctor_files as files
from .backup import DAMAGED, LATE, are_on_one_disk, newest
from .files.keys import AUDIT_DRAFT
from .files.keys import DRAFT as KEYS_DRAFT
from .files.seals import DRAFT as SEAL_DRAFT
from .files.seals import SealFile
from .files.service_lock import holder


def check_settings(usable: UsableSettings) -> Iterator[Finding]:
    for refusal in usable.refusals:
        remedy = "The service does not start; `agentops-memory serve --help-all` lists settings."
        yield failed("settings", refusal, remedy)
    if not usable.refusals:
        yield ok("settings", "All settings are valid.")


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


AWAY = "Mount it, and make the service's user its owner; the service then makes a backup itself."
LOG = "If the service is running, search its log for `backup` to see why."

Check = Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    usable: UsableSettings
    environment: Mapping[str, str]
    now: datetime
    tenant: TenantId | None = None  # all of them
    is_thorough: bool = False

    @property
    def settings(self) -> Settings:
        return self.usable.settings


def findings_of(
    context: DoctorContext, progress: Callable[[int, int], None] = noop
) -> list[Finding]:
    """All that is found, first what tenants share. Nothing is changed, and nothing is raised.

    `progress` gets how many checks are done, of how many.
    """
    shared, tenants, findings = _shared(context), _tenants(context), list[Finding]()
    of_tenant = 1 if context.settings.database_url else CHECKS_OF_FILE
    total = len(shared) + of_tenant * len(tenants)
    for done, (code, check) in enumerate(shared.items()):
        progress(done, total)
        findings += _safely(code, check)
    for number, tenant in enumerate(tenants):
        done = len(shared) + number * of_tenant
        progress(done, total)
        tell = partial(lambda before, done: progress(before + done, total), done)
        check = partial(_check_tenant, context, tenant, tell)
        findings += [replace(it, tenant=tenant) for it in _safely("file", check)]
    progress(total, total)
    return findings


def fixed(findings: Iterable[Finding]) -> Iterator[Finding]:
    """What came of each finding about which something is done: ok if it was done."""
    for finding in findings:
        if finding.fix is None:
            continue
        try:
            yield replace(finding, status=Status.OK, sentence=finding.fix(), remedy="", fix=None)
        except (Refusal, OSError) as error:
            yield replace(finding, sentence=f"{finding.sentence} Not fixed: {sentence_of(error)}")


def _shared(context: DoctorContext) -> dict[str, Check]:
    settings, keys = context.settings, registry_of(context.settings)
    checks: dict[str, Check] = {
        "program": _check_program,
        "settings": lambda: check_settings(context.usable),
        "environment": lambda: check_environment(context.environment),
        "redaction": lambda: files.check_redaction(settings.redaction_file),
        "seal": lambda: files.check_seal(settings.seal_file, context.now),
        "keys": lambda: files.check_keys(keys, context.now),
        "auth": lambda: _check_auth(settings, keys),
    }
    if url := settings.database_url:
        from ..postgresql.tenants import check_server  # noqa: PLC0415 - an extra

        return {"database": lambda: check_server(url), **checks}
    folder = settings.db_path.parent
    return checks | {
        "served": lambda: _check_holder(settings.db_path),
        "keys": lambda: files.check_keys(keys, context.now, settings.keys_file),
        "audit": lambda: files.check_audit(settings.audit_file),
        "tenants": lambda: _check_tenants(settings.db_path),
        "file-system": lambda: files.check_disk(settings.db_path) if folder.is_dir() else (),
        "leftovers": lambda: [_check_leftovers(settings)] if folder.is_dir() else (),
        "backup": lambda: _check_backups(settings, context.now),
    }


def _safely(code: str, check: Check) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except (OSError, Refusal, *GARBAGE) as error:
        sentence = f"It cannot be checked: {sentence_of(error)}"
        remedy = "Run this as the service's user, on the machine that has its files."
        findings.append(failed(code, sentence, remedy))
    return findings


def _tenants(context: DoctorContext) -> list[TenantId]:
    if context.tenant is not None:
        return [context.tenant]
    settings, others = context.settings, list[TenantId]()
    with suppress(OSError, Refusal):
        if settings.database_url:
            from ..postgresql.tenants import tenants_in  # noqa: PLC0415 - an extra

            others = tenants_in(settings.database_url)
        else:
            others = tenants_of(settings.db_path)
    return list(dict.fromkeys([DEFAULT_TENANT, *others]))


def _check_tenant(
    context: DoctorContext, tenant: TenantId, progress: Callable[[int], None]
) -> Iterator[Finding]:
    settings = context.settings
    if settings.database_url:
        from ..postgresql.tenants import check_schema  # noqa: PLC0415 - an extra

        yield from check_schema(settings.database_url, tenant)
        return
    path = tenant_file(settings.db_path, tenant)
    finding = files.check_file(path)
    yield finding
    if finding.status is not Status.OK:
        return
    path = Path(os.path.realpath(path))  # SQLite follows links; what it makes lies beside the file
    yield from files.check_access(path)
    if tenant != DEFAULT_TENANT:
        yield files.check_leftovers(path)
    yield from check_database(
        Subject(
            tenant=tenant,
            path=path,
            features=settings.recall,
            sealer=SealFile(settings.seal_file, lambda: context.now).sealer,
            now=context.now,
            quota=settings.tenant_quota,
            session_idle=settings.session_idle,
            is_thorough=context.is_thorough,
        ),
        progress,
    )


def _check_program() -> Iterator[Finding]:
    python = platform.python_version()
    versions = f"agentops-memory {__version__}, Python {python}, SQLite {sqlite3.sqlite_version}."
    if lack := library.lack():
        remedy = "Use a Python whose SQLite supports it, such as the one in the image."
        yield failed("program", f"{versions} {lack}", remedy)
    else:
        yield ok("program", versions)


def _check_holder(path: Path) -> Iterator[Finding]:
    service = holder(path)
    yield ok("served", f"It is served by {service}." if service else "No service has it open.")


def _check_auth(settings: Settings, keys: KeyRegistry) -> Iterator[Finding]:
    ring = keys.ring()
    try:
        keys.require_kept(ring)
        must_have_keys(ring, settings.auth, settings.listen.host)
    except (Unavailable, SettingRefused) as refusal:
        yield failed(
            "auth",
            f"The service would refuse to start. {refusal}",
            "`agentops-memory keys create --name NAME --role admin` creates a key.",
        )
        return
    if ring.was_ever_used:
        yield ok("auth", "Access requires a key.")
    else:
        yield note(
            "auth",
            f"No key exists: anyone who can reach {settings.listen} has full access.",
            "Create a key to require one: `agentops-memory keys create`.",
        )


def _check_tenants(path: Path) -> Iterator[Finding]:
    tenants = tenants_of(path)
    if unnamed := unnamed_in(path):
        yield note(
            "tenants",
            f"These file names are not valid tenant names: {', '.join(unnamed)}.",
            "The service ignores these files; move them elsewhere.",
        )
    count = f"There are {len(tenants):,} databases."
    if len(tenants) - 1 > MOST_OPEN:
        yield note(
            "tenants",
            f"{count} Besides the default one, at most {MOST_OPEN} are open at a time.",
            "If `Too many databases are in use` appears, split tenants across services.",
        )
    else:
        yield ok("tenants", count)


def _check_leftovers(settings: Settings) -> Finding:
    endings = {
        settings.keys_file: KEYS_DRAFT,
        settings.audit_file: AUDIT_DRAFT,
        settings.seal_file: SEAL_DRAFT,
    }
    drafts = [file.with_name(f"{file.name}{ending}") for file, ending in endings.items()]
    return files.check_leftovers(settings.db_path, drafts)


def _check_backups(settings: Settings, now: datetime) -> Iterator[Finding]:
    folder = settings.backup_dir
    if folder is None or not settings.backup_every:
        yield ok("backup", "Automatic backups are off.")
        return
    try:
        backup = newest(folder, now)
        made = backup and f"The newest backup was made at {backup.made_at:%Y-%m-%d %H:%M} (UTC)"
        if not os.access(folder, os.W_OK | os.X_OK):
            yield warn("backup", f"The user {os.geteuid()} cannot write to {folder}.", AWAY)
        elif backup is None:
            yield warn("backup", f"There is no backup in {folder}.", LOG)
        elif now - backup.made_at > LATE * settings.backup_every:
            yield warn("backup", f"{made}, longer ago than twice MEMORY_BACKUP_EVERY.", LOG)
        elif backup.is_damaged:
            yield warn("backup", DAMAGED, "`agentops-memory doctor --fix` repairs the database.")
        else:
            yield ok("backup", f"{made}.")
        if are_on_one_disk(folder, settings.db_path):
            yield warn(
                "backup",
                f"{folder} is on the same disk as the database, and would be lost with it.",
                "Mount another disk there.",
            )
    except OSError as error:
        yield warn("backup", f"{error.filename or folder} cannot be read: {error.strerror}.", AWAY)
