"""`scan`: secrets in what is already stored, shown by kind and place, or taken out."""

import json
import sys
from collections.abc import Iterator
from functools import partial

import click

from ...engine.engine import Engine
from ...http.paging import ENTRY, STORE, public_id
from ...memory.model.access import Caller, tenant_id
from ...memory.redactor import Redaction
from ...operations.files.redaction import RedactionFile
from ...operations.scan import Scan, SecretFinding
from ...recall.text.visible import printable
from ...secrets.redaction import redacted
from ..catalog import command
from ..options import json_option, setting_options, tenant_option
from ..output import progress_bar, say
from ..place import Place, finish, on_tenant, place_of


@command()
@setting_options()
@tenant_option("Whose memories.")
@click.option("--redact", is_flag=True, help="Take them out; without, nothing is changed.")
@json_option("Print a line of JSON for each place.")
def scan(tenant: str, redact: bool, as_json: bool, **flags: str | None) -> None:
    """Find secrets in what is stored: in live and deleted memories, revisions and summaries.

    It may run while a service uses the file. Exits with 1 if there are some and they stay.
    """
    place = place_of(flags)
    findings = on_tenant(place, tenant_id(tenant), partial(_found, place, redact))
    for line in _as_json(findings) if as_json else _sentences(findings, redact=redact):
        click.echo(line)
    sys.exit(1 if any(finding.in_names or not redact for finding in findings) else 0)


async def _found(place: Place, redact: bool, engine: Engine, caller: Caller) -> list[SecretFinding]:
    exceptions = RedactionFile(place.settings.redaction_file)
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
        say("writing over what was taken out")
        if still := await finish(place, engine, caller):
            say(still)
    return findings


def _sentences(findings: list[SecretFinding], *, redact: bool) -> Iterator[str]:
    for finding in findings:
        kinds = [f"{kind} {count}" for kind, count in finding.kinds.items()]
        names = [f"{kind} in a name {count}" for kind, count in finding.in_names.items()]
        yield f"{_place(finding)}: {', '.join(kinds + names)}"
    total = sum(sum(finding.kinds.values()) for finding in findings)
    left = sum(sum(finding.in_names.values()) for finding in findings)
    done = "taken out" if redact else "found; --redact takes them out"
    yield f"{total} secrets {done}" if total else "no secrets found in what is said"
    if left:
        yield f"{left} in names and paths stay: nothing can take those out"


def _as_json(findings: list[SecretFinding]) -> Iterator[str]:
    for finding in findings:
        counts = {"kinds": dict(finding.kinds), "in_names": dict(finding.in_names)}
        yield json.dumps(dict(_names(finding)) | counts)


def _place(finding: SecretFinding) -> str:
    names = [f"{kind} {name}" for kind, name in _names(finding)]
    return " of ".join(reversed(names)).replace(" of project ", " of ")


def _names(finding: SecretFinding) -> Iterator[tuple[str, object]]:
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
    yield "project", _shown(finding.project)
    if finding.memory is not None:
        yield "observation", finding.memory
    if finding.session is not None:
        yield "session", _shown(finding.session)


def _shown(name: object) -> str:
    return printable(redacted(str(name)).text)
