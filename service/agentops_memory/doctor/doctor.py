"""The examination of a whole service: its settings, its files, and the database of each tenant."""

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from .. import __version__
from ..domain.errors import Refusal, SettingRefused
from ..domain.model.access import DEFAULT_TENANT, TenantId
from ..domain.model.findings import GARBAGE, Finding, Status
from ..domain.secrets.sanitizing import sentence_of
from ..files.keys import KeyFile, KeyFileRefused
from ..files.service_lock import holder
from ..settings.settings import Settings
from ..storage.sqlite.base import library
from ..storage.sqlite.engine.tenant_files import tenants_of, unnamed_in
from ..storage.sqlite.engine.tenants import MOST_OPEN, tenant_file
from ..storage.sqlite.maintenance.examination import Subject, examined
from ..web.auth import must_have_keys
from . import files
from . import private_files as private
from .backups import of_backups
from .settings import Usable, of_environment, of_settings

Look = Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """What is examined, and when."""

    usable: Usable
    environment: Mapping[str, str]
    now: datetime
    tenant: TenantId | None = None  # all of them
    is_thorough: bool = False

    @property
    def settings(self) -> Settings:
        return self.usable.settings


def findings_of(patient: Patient) -> list[Finding]:
    """All that is found, first what tenants share. Nothing is changed, and nothing is raised."""
    found = [it for code, look in _shared(patient).items() for it in _safely(code, look)]
    for tenant in _tenants(patient):
        look = partial(_of_tenant, patient, tenant)
        found += [replace(it, tenant=tenant) for it in _safely("file", look)]
    return found


def mended(findings: Iterable[Finding]) -> Iterator[Finding]:
    """What came of each finding about which something is done: ok if it was done."""
    for finding in findings:
        if finding.mend is None:
            continue
        try:
            yield replace(finding, status=Status.OK, sentence=finding.mend(), remedy="", mend=None)
        except (Refusal, OSError) as error:
            yield replace(finding, sentence=f"{finding.sentence} It stays: {sentence_of(error)}")


def _shared(patient: Patient) -> dict[str, Look]:
    """How each thing is looked at that concerns all tenants."""
    place = patient.settings
    return {
        "program": _of_program,
        "settings": lambda: of_settings(patient.usable),
        "environment": lambda: of_environment(patient.environment),
        "served": lambda: _of_holder(place.db_path),
        "keys": lambda: private.of_keys(place.keys_file, place.audit_file, patient.now),
        "auth": lambda: _of_auth(place),
        "redaction": lambda: private.of_redaction(place.redaction_file),
        "audit": lambda: private.of_audit(place.audit_file),
        "tenants": lambda: _of_tenants(place.db_path),
        "file-system": lambda: _of_folder(place.db_path),
        "leftovers": lambda: _of_leftovers(place),
        "backup": lambda: of_backups(place, patient.now),
    }


def _safely(code: str, look: Look) -> list[Finding]:
    """What a look finds, with what keeps it from going on."""
    findings: list[Finding] = []
    try:
        findings.extend(look())
    except (OSError, Refusal, *GARBAGE) as error:
        findings.append(
            Finding(
                code=code,
                status=Status.FAILED,
                sentence=f"It cannot be looked at: {sentence_of(error)}",
                remedy="Run this as the user of the service, where its files are.",
            )
        )
    return findings


def _tenants(patient: Patient) -> list[TenantId]:
    if patient.tenant is not None:
        return [patient.tenant]
    try:
        there = tenants_of(patient.settings.db_path)
    except OSError:
        there = []
    return list(dict.fromkeys([DEFAULT_TENANT, *there]))


def _of_tenant(patient: Patient, tenant: TenantId) -> Iterator[Finding]:
    place = patient.settings
    path = tenant_file(place.db_path, tenant)
    found = files.of_file(path)
    yield found
    if found.status is not Status.OK:
        return
    path = Path(os.path.realpath(path))  # SQLite follows links; what it makes lies beside the file
    yield from files.of_access(path)
    if tenant != DEFAULT_TENANT:
        yield files.of_leftovers(path)
    yield from examined(
        Subject(
            path=path,
            features=place.recall,
            now=patient.now,
            quota=place.tenant_quota,
            session_idle=place.session_idle,
            is_thorough=patient.is_thorough,
        )
    )


def _of_program() -> Iterator[Finding]:
    told = f"agentops-memory {__version__}, Python {platform.python_version()}, "
    told += f"SQLite {library.version()}."
    lack = library.lack()
    yield Finding(
        code="program",
        status=Status.FAILED if lack else Status.OK,
        sentence=f"{told} {lack}".strip(),
        remedy="Use a Python whose SQLite has it, as that of the image." if lack else "",
    )


def _of_holder(path: Path) -> Iterator[Finding]:
    found = holder(path)
    if found is None:
        yield Finding(code="served", sentence="No service has it now.")
    else:
        yield Finding(code="served", sentence=f"It is served by {found}.")


def _of_auth(place: Settings) -> Iterator[Finding]:
    file = KeyFile(place.keys_file, place.audit_file)
    ring = file.ring()
    try:
        file.require_kept(ring)
        must_have_keys(ring, place.auth, place.listen.host)
    except (KeyFileRefused, SettingRefused) as refusal:
        yield Finding(
            code="auth",
            status=Status.FAILED,
            sentence=f"A start would be refused. {refusal}",
            remedy="`agentops-memory keys create --name NAME --role admin` makes a key.",
        )
        return
    if ring.was_ever_used:
        yield Finding(code="auth", sentence="Only keys let somebody in.")
    else:
        yield Finding(
            code="auth",
            status=Status.NOTE,
            sentence=f"No key was ever made: whoever reaches {place.listen} may do everything.",
            remedy="The first key closes it: `agentops-memory keys create`.",
        )


def _of_tenants(path: Path) -> Iterator[Finding]:
    there, unnamed = tenants_of(path), unnamed_in(path)
    many = len(there) - 1 > MOST_OPEN
    if unnamed:
        yield Finding(
            code="tenants",
            status=Status.NOTE,
            sentence=f"No tenant can be called as these files are: {', '.join(unnamed)}.",
            remedy="The service never opens them; move them away.",
        )
    yield Finding(
        code="tenants",
        status=Status.NOTE if many else Status.OK,
        sentence=f"There are {len(there):,} databases."
        + f" At most {MOST_OPEN} beside the default one are open at a time." * many,
        remedy="If `Too many databases are in use` is answered, split them over services."
        if many
        else "",
    )


def _of_folder(path: Path) -> Iterator[Finding]:
    if path.parent.is_dir():
        yield files.of_file_system(path)
        yield files.of_space(path)


def _of_leftovers(place: Settings) -> Iterator[Finding]:
    if not place.db_path.parent.is_dir():
        return
    keys, audit = place.keys_file, place.audit_file
    drafts = keys.with_name(f"{keys.name}.new"), audit.with_name(f"{audit.name}.part")
    yield files.of_leftovers(place.db_path, drafts)
