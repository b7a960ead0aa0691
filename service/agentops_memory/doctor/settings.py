"""What the settings and the variables around them are found to be."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ..domain.errors import SettingRefused
from ..domain.model.findings import Finding, Status
from ..settings.settings import VARIABLES, Settings, settings

Flags = Mapping[str, str | None]

OURS = "MEMORY_"
OF_CLIENTS = ("MEMORY_URL", "MEMORY_API_KEY", "MEMORY_PROJECT")
KNOWN = (*(variable.name for variable in VARIABLES), *OF_CLIENTS)
# Kubernetes tells of a service that is called memory by variables of its own.
OF_A_CLUSTER = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """The settings, with a default in place of each that cannot be used, and those refusals."""

    settings: Settings
    refusals: tuple[str, ...]


def usable(environment: Mapping[str, str], flags: Flags) -> Usable:
    """The settings that can be used. A file that cannot be named is SettingRefused."""
    refusals: list[str] = []
    left, told = dict(environment), dict(flags)
    while True:
        try:
            return Usable(settings=settings(left, told), refusals=tuple(refusals))
        except SettingRefused as refusal:
            wrong = _of(str(refusal))
            if wrong is None or not (left.pop(wrong[0], None) or told.get(wrong[1])):
                raise
            told[wrong[1]] = None
            refusals.append(str(refusal))


def of_settings(found: Usable) -> Iterator[Finding]:
    for refusal in found.refusals:
        yield Finding(
            code="settings",
            status=Status.FAILED,
            sentence=refusal,
            remedy="A start would be refused; `agentops-memory serve --help` tells what it takes.",
        )
    if not found.refusals:
        yield Finding(code="settings", sentence="Each can be used.")


def of_environment(environment: Mapping[str, str]) -> Iterator[Finding]:
    unknown = sorted(
        name
        for name in environment
        if name.startswith(OURS) and name not in KNOWN and not OF_A_CLUSTER.fullmatch(name)
    )
    for name in unknown:
        yield _unknown(name)
    if not unknown:
        yield Finding(code="environment", sentence="No variable looks like one and is none.")


def _unknown(name: str) -> Finding:
    near = get_close_matches(name, KNOWN, n=1, cutoff=0.75)
    return Finding(
        code="environment",
        status=Status.WARNING if near else Status.NOTE,
        sentence=f"{name} is no setting, and changes nothing.",
        remedy=f"Was {near[0]} meant?" if near else "docs/configuration.md names those there are.",
    )


def _of(refusal: str) -> tuple[str, str] | None:
    """The variable that a refusal is about, and its field."""
    name = refusal.partition(":")[0]
    return next(((it.name, it.field) for it in VARIABLES if it.name == name), None)
