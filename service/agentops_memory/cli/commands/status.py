"""`status` and `open`: whether a service runs and what it has, and its page in a browser."""

import json
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

import click

from agentops_memory_client.contract.models import Observation, Stats
from agentops_memory_client.contract.service import MemoryService

from ...memory.model.space import project_name
from ..catalog import command
from ..errors import CommandRefused, NoDatabase
from ..options import (
    here_option,
    json_option,
    key_file_option,
    setting_options,
    target_options,
    url_option,
)
from ..output import ago, counted, one_line, show
from ..place import chosen_settings
from ..print_results import json_of
from ..target import Target, run_on_target

TIMEOUT = 2.0  # seconds
PAGE = "/docs"
# The service is never behind the proxy that the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Facts = Mapping[str, Any]


class NoService(CommandRefused):
    """Nothing answers where the service would."""


@command()
@here_option
@setting_options("listen")
@target_options
@json_option()
def status(project: str, listen: str | None, as_json: bool, **given: str | None) -> None:
    """Show whether the service runs, where its data is, and how much is stored.

    Exits with 1 if the service answers that a check has failed.
    """
    target = Target.of(given)
    url = _url(target, listen)
    checks = _readiness(url)
    facts: dict[str, Any] = {
        "url": url,
        "is_running": checks is not None,
        "database": None if target.url else _database(target),
        "project": project_name(project) or None,
        "memories": None,
        "checks": (checks or {}).get("checks", {}),
    }
    if checks is not None or not target.url:
        try:
            facts |= run_on_target(given, lambda memories: _stored(memories, project))
        except NoDatabase:
            facts["database_is_missing"] = True
    if as_json:
        click.echo(json.dumps({name: json_of(fact) for name, fact in facts.items()}))
    else:
        for name, sentence in _sentences(facts):
            show(f"{name:<10}{one_line(sentence)}")
    sys.exit(1 if (checks or {}).get("status") == "failed" else 0)


@command("open")
@url_option
@key_file_option
@setting_options("listen")
@click.option("--print", "is_printed", is_flag=True, help="Print the address, and open nothing.")
def open_(url: str | None, key_file: str | None, listen: str | None, is_printed: bool) -> None:
    """Open the page of the running service's API in a browser."""
    where = {"url": url, "key_file": key_file, "db_path": None, "tenant": None}
    base = _url(Target.of(where), listen)
    if _readiness(base) is None:
        raise NoService(f"Nothing answers at {base}.")
    click.echo(base + PAGE)
    if not is_printed:
        click.launch(base + PAGE)


async def _stored(memories: MemoryService, project: str) -> Facts:
    total: Stats = await memories.stats()
    own: Stats = await memories.stats(project)
    newest: list[Observation] = await memories.recent(limit=1)
    return {
        "memories": total.total_observations,
        "projects": total.projects,
        "memories_of_project": own.total_observations,
        "last_saved_at": newest[0].created_at if newest else None,
    }


def _url(target: Target, listen: str | None) -> str:
    if target.url:
        return target.url.rstrip("/")
    address = chosen_settings({"listen": listen}).listen
    return f"http://{address.host or '127.0.0.1'}:{address.port}"


def _database(target: Target) -> str:
    settings = target.settings
    return "PostgreSQL" if settings.database_url else str(settings.db_path)


def _readiness(url: str) -> Facts | None:
    """What the service says of itself; nothing if none answers."""
    try:
        with _DIRECT.open(f"{url}/health/ready", timeout=TIMEOUT) as answer:
            body = answer.read()
    except HTTPError as error:
        body = error.read()
    except (OSError, ValueError, HTTPException):
        return None
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "status" in found else None


def _sentences(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts["is_running"]:
        yield "Service", f"running at {facts['url']}, its API at {facts['url']}{PAGE}"
    else:
        yield "Service", f"not running at {facts['url']}; `agentops-memory serve` starts it"
    if facts.get("database_is_missing"):
        yield "Data", f"no database at {facts['database']} yet; `agentops-memory save` makes it"
        return
    if facts["database"]:
        yield "Data", facts["database"]
    if facts["memories"] is not None:
        yield (
            "Stored",
            (
                f"{counted(facts['memories'], 'memory', 'memories')} in "
                f"{counted(len(facts['projects']), 'project')}"
            ),
        )
        if facts["project"]:
            yield (
                "Here",
                (
                    f"{counted(facts['memories_of_project'], 'memory', 'memories')} in the project "
                    f"{facts['project']}"
                ),
            )
        yield "Last save", ago(facts["last_saved_at"]) if facts["last_saved_at"] else "never"
    for name, check in facts["checks"].items():
        if check.get("status") != "ok":
            yield "Check", f"{name}: {check.get('status')}. {check.get('detail') or ''}"
    if facts["is_running"] and all(it.get("status") == "ok" for it in facts["checks"].values()):
        yield "Checks", f"{', '.join(facts['checks']) or 'all'}: ok"
