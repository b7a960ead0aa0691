"""What the settings and the variables around them are found to be."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import SettingRefused
from ...memory.model.findings import Finding, failed, note, ok, warn
from ...settings.settings import VARIABLES, Settings, settings

Flags = Mapping[str, str | None]

OURS = "MEMORY_"
OF_CLIENTS = ("MEMORY_URL", "MEMORY_API_KEY", "MEMORY_PROJECT")
BY_NAME = {variable.name: variable for variable in VARIABLES}
KNOWN = (*BY_NAME, *OF_CLIENTS)
# Kubernetes tells of a service that is called memory by variables of its own.
OF_A_CLUSTER = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableSettings:
    """The settings, with a default in place of each that cannot be used, and those refusals."""

    settings: Settings
    refusals: tuple[str, ...]


def settings_or_defaults(environment: Mapping[str, str], flags: Flags) -> UsableSettings:
    """The settings that can be used. A file that cannot be named is SettingRefused."""
    refusals: list[str] = []
    left, given = dict(environment), dict(flags)
    while True:
        try:
            return UsableSettings(settings=settings(left, given), refusals=tuple(refusals))
        except SettingRefused as refusal:
            wrong = BY_NAME.get(str(refusal).partition(":")[0])
            if wrong is None or not (left.pop(wrong.name, None) or given.get(wrong.field)):
                raise
            given[wrong.field] = None
            refusals.append(str(refusal))


def check_settings(found: UsableSettings) -> Iterator[Finding]:
    for refusal in found.refusals:
        remedy = "A start would be refused; `agentops-memory serve --help-all` tells what it takes."
        yield failed("settings", refusal, remedy)
    if not found.refusals:
        yield ok("settings", "Each can be used.")


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that look like settings and are none, each with the one it resembles."""
    unknown = sorted(
        name
        for name in environment
        if name.startswith(OURS) and name not in KNOWN and not OF_A_CLUSTER.fullmatch(name)
    )
    return {
        name: next(iter(get_close_matches(name, KNOWN, n=1, cutoff=0.75)), None) for name in unknown
    }


def check_environment(environment: Mapping[str, str]) -> Iterator[Finding]:
    unknown = unknown_variables(environment)
    for name, meant in unknown.items():
        sentence = f"{name} is no setting, and changes nothing."
        if meant:
            yield warn("environment", sentence, f"Was {meant} meant?")
        else:
            yield note("environment", sentence, "docs/configuration.md names those there are.")
    if not unknown:
        yield ok("environment", "No variable looks like one and is none.")
