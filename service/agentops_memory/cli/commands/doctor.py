"""`doctor`: what is wrong with a service and its files, in sentences, and what is safe to mend."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import click

from ...engine.callbacks import noop
from ...memory.model.access import tenant_id
from ...memory.model.findings import Finding, Status, has_failed, worst_first
from ...operations.doctor import DoctorContext, findings_of, fixed
from ...settings.settings import settings_or_defaults
from ..catalog import command
from ..invocation import now
from ..options import json_option, setting_options
from ..output import counted, one_line, progress_bar
from ..place import require_one_place

COLOURS = {Status.FAILED: "red", Status.WARNING: "yellow"}
WIDEST = len("not fixed")


@command()
@setting_options()
@click.option("--tenant", metavar="NAME", help="Whose database; without, every tenant's.")
@click.option("--thorough", is_flag=True, help="Compare every index, row by row and word by word.")
@click.option("--fix", is_flag=True, help="Mend what is safe; without, nothing is changed.")
@json_option("Print one JSON document.")
def doctor(
    tenant: str | None, thorough: bool, fix: bool, as_json: bool, **flags: str | None
) -> None:
    """Look at the settings, the files and the database of each tenant, and say what is wrong.

    A service may be running meanwhile. Exits with 1 if
    something failed, and with 0 if there are warnings alone.
    """
    usable = settings_or_defaults(os.environ, flags)
    require_one_place(usable.settings, flags)
    context = DoctorContext(
        usable=usable,
        environment=os.environ,
        now=now(),
        tenant=None if tenant is None else tenant_id(tenant),
        is_thorough=thorough,
    )
    with progress_bar("Examining") as bar:
        findings = findings_of(context, bar or noop)
    done = list(fixed(findings)) if fix else []
    if done:
        with progress_bar("Examining again") as bar:
            findings = findings_of(replace(context, now=now()), bar or noop)
    lines = [_document(findings, done)] if as_json else _lines(findings, done)
    for line in lines:
        click.echo(line)
    sys.exit(1 if has_failed(findings) else 0)


def _lines(findings: Sequence[Finding], done: Sequence[Finding]) -> Iterator[str]:
    for finding in done:
        kind = "fixed" if finding.status is Status.OK else "not fixed"
        yield f"{kind:{WIDEST}}  {_sentence(finding)}"
    wrong = [it for it in worst_first(findings) if it.status is not Status.OK]
    for finding in wrong:
        label = click.style(f"{finding.status:{WIDEST}}", fg=COLOURS.get(finding.status))
        yield f"{label}  {_sentence(finding)}"
    yield from _well(findings, {(it.code, it.tenant) for it in wrong})
    yield _closing(findings)


def _sentence(finding: Finding) -> str:
    where = f" ({finding.tenant})" if finding.tenant else ""
    return one_line(f"{finding.code}{where}: {finding.sentence} {finding.remedy}")


def _well(findings: Iterable[Finding], wrong: set[tuple[str, str | None]]) -> Iterator[str]:
    well: dict[str, list[str]] = {}
    for it in findings:
        if it.status is Status.OK and (it.code, it.tenant) not in wrong:
            well.setdefault(it.tenant or "shared by all tenants", []).append(it.code)
    for where, codes in well.items():
        yield f"{Status.OK:{WIDEST}}  {where}: {', '.join(dict.fromkeys(codes))}"


def _closing(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.status for finding in findings)
    fixable = sum(finding.is_fixable for finding in findings)
    if not (counts[Status.FAILED] or counts[Status.WARNING]):
        return "Nothing is wrong."
    text = f"{counted(counts[Status.FAILED], 'failure')}, "
    text += counted(counts[Status.WARNING], "warning")
    return f"{text}; --fix does something about {fixable} of them." if fixable else f"{text}."


def _document(findings: Sequence[Finding], done: Sequence[Finding]) -> str:
    counts = Counter(finding.status for finding in findings)
    return json.dumps(
        {
            "is_well": not has_failed(findings),
            **{status.value: counts[status] for status in Status},
            "findings": [*map(_shown, worst_first(findings))],
            "done": [*map(_shown, done)],
        }
    )


def _shown(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "tenant": finding.tenant,
        "status": finding.status,
        "sentence": finding.sentence,
        "remedy": finding.remedy,
        "is_fixable": finding.is_fixable,
    }
