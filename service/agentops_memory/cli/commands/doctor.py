"""`doctor` and `scan`: what is wrong with a service, and secrets in what it has stored."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import click

from ...engine.engine import Engine, noop
from ...http.query import ENTRY, STORE, public_id
from ...memory.access import Caller, tenant_id
from ...memory.damage import Finding, Status, has_failed, worst_first
from ...memory.redactor import Redaction
from ...operations.doctor import DoctorContext, findings_of, fixed
from ...operations.redaction import RedactionFile
from ...operations.scan import Scan, SecretFinding
from ...recall.visible import printable
from ...secrets.redaction import redacted
from ...settings import settings_or_defaults
from ..output import counted, one_line, progress_bar, say
from ..place import Backend, backend_of, finish, now, on_tenant, require_one_backend
from ..print_results import parts, tell
from ..program import command
from ..target import flag, json_option, option, setting_options, tenant_option

COLOURS = {Status.FAILED: "red", Status.WARNING: "yellow"}
WIDEST = len("not fixed")


@command(
    *setting_options(),
    option(
        "--tenant", metavar="NAME", help="Only this tenant's database. [default: every tenant's]"
    ),
    flag("--thorough", help="Compare every index, row by row and word by word."),
    flag("--fix", help="Fix what can be fixed safely; without this, nothing is changed."),
    json_option(help="Print one JSON document."),
)
def doctor(
    tenant: str | None, thorough: bool, fix: bool, as_json: bool, **flags: str | None
) -> None:
    """Check the settings, the files and the database of each tenant, and report problems.

    A service may be running. Exits with 1 if a check failed; warnings alone exit with 0.
    """
    usable = settings_or_defaults(os.environ, flags)
    require_one_backend(usable.settings, flags)
    named = None if tenant is None else tenant_id(tenant)
    context = DoctorContext(
        usable=usable, environment=os.environ, now=now(), tenant=named, is_thorough=thorough
    )
    with progress_bar("Examining") as bar:
        findings = findings_of(context, bar or noop)
    done = list(fixed(findings)) if fix else []
    if done:
        with progress_bar("Examining again") as bar:
            findings = findings_of(replace(context, now=now()), bar or noop)
    tell(_document(findings, done), "\n".join(_lines(findings, done)), as_json=as_json)
    sys.exit(1 if has_failed(findings) else 0)


def _lines(findings: Sequence[Finding], done: Sequence[Finding]) -> Iterator[str]:
    for finding in done:
        kind = "fixed" if finding.status is Status.OK else "not fixed"
        yield f"{kind:{WIDEST}}  {_sentence(finding)}"
    wrong = [it for it in worst_first(findings) if it.status is not Status.OK]
    for finding in wrong:
        label = click.style(f"{finding.status:{WIDEST}}", fg=COLOURS.get(finding.status))
        yield f"{label}  {_sentence(finding)}"
    codes: dict[str, list[str]] = {}
    failing = {(it.code, it.tenant) for it in wrong}
    for it in findings:
        if it.status is Status.OK and (it.code, it.tenant) not in failing:
            codes.setdefault(it.tenant or "shared by all tenants", []).append(it.code)
    for where, good in codes.items():
        yield f"{Status.OK:{WIDEST}}  {where}: {', '.join(dict.fromkeys(good))}"
    counts = Counter(finding.status for finding in findings)
    if not (counts[Status.FAILED] or counts[Status.WARNING]):
        yield "Nothing is wrong."
        return
    failures = counted(counts[Status.FAILED], "failure")
    text = f"{failures}, {counted(counts[Status.WARNING], 'warning')}"
    fixable = sum(finding.is_fixable for finding in findings)
    yield f"{text}; --fix can fix {fixable} of them." if fixable else f"{text}."


def _sentence(finding: Finding) -> str:
    where = f" ({finding.tenant})" if finding.tenant else ""
    return one_line(f"{finding.code}{where}: {finding.sentence} {finding.remedy}")


def _document(findings: Sequence[Finding], done: Sequence[Finding]) -> dict[str, object]:
    counts = Counter(finding.status for finding in findings)
    names = "code tenant status sentence remedy is_fixable"
    return {
        "is_well": not has_failed(findings),
        **{status.value: counts[status] for status in Status},
        "findings": [parts(it, names) for it in worst_first(findings)],
        "done": [parts(it, names) for it in done],
    }


@command(
    *setting_options(),
    tenant_option(help="Whose memories."),
    flag("--redact", help="Remove the secrets; without this, nothing is changed."),
    json_option(help="Print a line of JSON for each place."),
)
def scan(tenant: str, redact: bool, as_json: bool, **flags: str | None) -> None:
    """Find secrets in stored data: in live and deleted memories, revisions and summaries.

    A service may be using the file. Exits with 1 if secrets were found and not removed.
    """
    backend = backend_of(flags)
    findings = on_tenant(backend, tenant_id(tenant), partial(_scanned, backend, redact))
    for finding in findings if as_json else ():
        counts = {"kinds": dict(finding.kinds), "in_names": dict(finding.in_names)}
        click.echo(json.dumps(dict(_secret_names(finding)) | counts))
    for line in () if as_json else _secrets(findings, redact=redact):
        click.echo(line)
    sys.exit(1 if any(finding.in_names or not redact for finding in findings) else 0)


async def _scanned(
    backend: Backend, redact: bool, engine: Engine, caller: Caller
) -> list[SecretFinding]:
    exceptions = RedactionFile(backend.settings.redaction_file)
    exceptions.read()
    scan = Scan(engine=engine, rules=Redaction(exceptions=exceptions.rules).rules)
    findings: list[SecretFinding] = []
    done, total = 0, await scan.size(caller)
    with progress_bar("Scanning") as advance:
        async for scanned in scan.redact(caller) if redact else scan.look(caller):
            findings += scanned.findings
            done += scanned.rows
            if advance:
                advance(done, total)
    if redact and any(finding.kinds for finding in findings):
        say("overwriting the removed bytes")
        if remaining := await finish(backend, engine, caller):
            say(remaining)
    return findings


def _secrets(findings: list[SecretFinding], *, redact: bool) -> Iterator[str]:
    for finding in findings:
        kinds = [f"{kind} {count}" for kind, count in finding.kinds.items()]
        names = [f"{kind} in a name {count}" for kind, count in finding.in_names.items()]
        steps = reversed([f"{kind} {name}" for kind, name in _secret_names(finding)])
        where = " of ".join(steps).replace(" of project ", " of ")
        yield f"{where}: {', '.join(kinds + names)}"
    total = sum(sum(finding.kinds.values()) for finding in findings)
    left = sum(sum(finding.in_names.values()) for finding in findings)
    done = "taken out" if redact else "found; --redact removes them"
    yield f"{total} secrets {done}" if total else "no secrets found in texts"
    if left:
        yield f"{left} in names and paths remain: they cannot be removed"


def _secret_names(finding: SecretFinding) -> Iterator[tuple[str, object]]:
    if finding.store is not None:
        yield "store", public_id(STORE, finding.store)
        if finding.entry is not None:
            yield "memory", public_id(ENTRY, finding.entry)
        if finding.numbers:
            yield "versions", ", ".join(map(str, finding.numbers))
        return
    if finding.proposal is not None:
        yield "proposal", finding.proposal
        return
    if finding.run is not None:
        yield "run", _secret_name(finding.run)
        return
    yield "project", _secret_name(finding.project)
    if finding.memory is not None:
        yield "observation", finding.memory
    if finding.session is not None:
        yield "session", _secret_name(finding.session)


def _secret_name(name: object) -> str:
    return printable(redacted(str(name)).text)
