"""`scan`: secrets in what is already stored, shown by kind and place, or taken out."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator

import click

from ..compose import utc_now
from ..domain.erasures import Erasures
from ..domain.errors import Refusal
from ..domain.model import Caller
from ..domain.rules import Redaction
from ..domain.scan import Finding, Scan
from ..domain.tenants import tenant_id
from ..settings import Settings
from ..storage.redaction_file import RedactionFile
from ..storage.sqlite import SqliteEngine
from ..storage.sqlite.migrate import require_current
from ..storage.sqlite.tenants import tenant_file

REFUSALS = (Refusal,)


def run(settings: Settings, *, tenant: str, redact: bool, as_json: bool) -> bool:
    """Print where secrets stand, or stood; whether none is left.

    Raises one of REFUSALS when there is no such file, or when a start would change it.
    """
    caller = Caller(tenant=tenant_id(tenant))
    require_current(tenant_file(settings.db_path, caller.tenant), settings.recall)
    findings = asyncio.run(_found(settings, caller, redact=redact))
    for line in _as_json(findings) if as_json else _sentences(findings, redact=redact):
        click.echo(line)
    return redact or not findings


async def _found(settings: Settings, caller: Caller, *, redact: bool) -> list[Finding]:
    exceptions = RedactionFile(settings.redaction_file)
    exceptions.read()
    redaction = Redaction(exceptions=exceptions.rules)
    path = tenant_file(settings.db_path, caller.tenant)
    async with SqliteEngine.opened(path, clock=utc_now, using=settings.recall) as engine:
        scan = Scan(engine=engine, rules=redaction.rules)
        findings: list[Finding] = []
        length = await scan.size(caller)
        with click.progressbar(length=length, label="scanning", file=sys.stderr) as bar:
            async for scanned in scan.redact(caller) if redact else scan.look(caller):
                findings += scanned.findings
                bar.update(scanned.rows)
        if redact and findings:
            click.echo("writing over what was taken out", err=True)
            await Erasures(engine=engine).finish(caller)
    return findings


def _sentences(findings: list[Finding], *, redact: bool) -> Iterator[str]:
    for finding in findings:
        place = f"observation {finding.memory}" if finding.memory else f"session {finding.session}"
        kinds = ", ".join(f"{kind} {count}" for kind, count in finding.kinds.items())
        yield _printable(f"{place} of {finding.project}: {kinds}")
    total = sum((Counter(finding.kinds) for finding in findings), Counter[str]()).total()
    done = "taken out" if redact else "found; --redact takes them out"
    yield f"{total} secrets {done}" if findings else "no secrets found"


def _as_json(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        place = {"observation": finding.memory, "session": finding.session}
        shown = {name: value for name, value in place.items() if value is not None}
        yield json.dumps({"project": finding.project, **shown, "kinds": dict(finding.kinds)})


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
