"""`doctor`: what is wrong with a service and its files, in sentences, and what is safe to mend."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import click

from ...compose import utc_now
from ...doctor.doctor import DoctorContext, findings_of, fixed
from ...doctor.settings import Flags, settings_or_defaults
from ...domain.model.access import tenant_id
from ...domain.model.findings import Finding, Status, has_failed, worst_first
from ..output import counted, one_line

COLOURS = {Status.FAILED: "red", Status.WARNING: "yellow"}
WIDEST = len("not fixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What somebody asks of the doctor."""

    tenant: str | None
    is_thorough: bool
    is_to_mend: bool
    as_json: bool


def run(flags: Flags, wanted: Wanted) -> bool:
    """Print what is found; whether nothing has failed. Without `is_to_mend` nothing is changed."""
    context = DoctorContext(
        usable=settings_or_defaults(os.environ, flags),
        environment=os.environ,
        now=utc_now(),
        tenant=None if wanted.tenant is None else tenant_id(wanted.tenant),
        is_thorough=wanted.is_thorough,
    )
    findings = findings_of(context)
    done = list(fixed(findings)) if wanted.is_to_mend else []
    if done:
        findings = findings_of(replace(context, now=utc_now()))
    lines = [_document(findings, done)] if wanted.as_json else _lines(findings, done)
    for line in lines:
        click.echo(line)
    return not has_failed(findings)


def _lines(findings: Sequence[Finding], done: Sequence[Finding]) -> Iterator[str]:
    for finding in done:
        kind = "fixed" if finding.status is Status.OK else "not fixed"
        yield f"{kind:{WIDEST}}  {_told(finding)}"
    wrong = [it for it in worst_first(findings) if it.status is not Status.OK]
    for finding in wrong:
        label = click.style(f"{finding.status:{WIDEST}}", fg=COLOURS.get(finding.status))
        yield f"{label}  {_told(finding)}"
    yield from _well(findings, {(it.code, it.tenant) for it in wrong})
    yield _closing(findings)


def _told(finding: Finding) -> str:
    where = f" ({finding.tenant})" if finding.tenant else ""
    return one_line(f"{finding.code}{where}: {finding.sentence} {finding.remedy}")


def _well(findings: Iterable[Finding], wrong: set[tuple[str, str | None]]) -> Iterator[str]:
    """A line for each tenant, of all that is well."""
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
    told = f"{counted(counts[Status.FAILED], 'failure')}, "
    told += counted(counts[Status.WARNING], "warning")
    return f"{told}; --fix does something about {fixable} of them." if fixable else f"{told}."


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
