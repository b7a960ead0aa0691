"""`serve`, `health`, `status`, `open`, `mcp` and `demo`."""

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import click

from ...errors import Invalid
from ...light import Lazy, replace
from ...memory.space import project_name
from ...recall.text import clean
from ...settings import Flags, Settings, settings, unknown_variables
from .. import output as out, target as o
from ..program import command
from ..target import URL, Target, run_on_target, service_at

if TYPE_CHECKING:
    from urllib import request as urls

    import agentops_memory_client as client
    from agentops_memory_client.contract.service import MemoryService

    from ... import local, server, telemetry
    from ...mcp import server as stdio
    from ...sqlite import dialect as sqlite
    from .. import place
else:  # each is needed by few of the commands
    client = Lazy(None, "agentops_memory_client")
    local, server = Lazy(__package__, "...local"), Lazy(__package__, "...server")
    telemetry = Lazy(__package__, "...telemetry")
    stdio = Lazy(__package__, "...mcp.server")
    sqlite = Lazy(__package__, "...sqlite.dialect")
    place = Lazy(__package__, "..place")
    urls = Lazy(None, "urllib.request")

log = logging.getLogger(__name__)

TIMEOUT = 2.0  # seconds for a response to `health`, `status` and `open`


@command(*o.setting_options())
def serve(**flags: str | None) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Each option can also be set by the environment variable shown after it. An
    option overrides its variable, which overrides the default; an empty value counts
    as unset. MEMORY_DATABASE_URL, which may contain a password, has no option.
    """
    chosen, has_colors = place.chosen_settings(flags), not os.environ.get("NO_COLOR")
    level, form = chosen.log_level.upper(), chosen.log_format
    telemetry.configure_logging(level, form=form, has_colors=has_colors)
    for name, meant in unknown_variables(os.environ).items():
        if meant:
            fields = {"variable": name, "meant": meant}
            log.warning("an unknown variable is ignored", extra=fields)
    sqlite.without_memory_statistics()
    loop_factory: Any = None
    with suppress(ImportError):
        import uvloop  # noqa: PLC0415 - optional: it does not build everywhere

        loop_factory = uvloop.Loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(server.serve(chosen))


@command(*o.SERVICE, *o.setting_options())
def health(**flags: str | None) -> None:
    """Exit with 0 if the service at --url, or else at --listen, is healthy, and with 1 if not."""
    target = Target.of(flags, is_operator=True)
    if target.url:
        try:
            with client.MemoryClient.from_environment(
                url=target.url, key=target.key, timeout=timedelta(seconds=TIMEOUT), retries=0
            ) as service:
                service.health()
        except client.MemoryServiceError as error:
            out.fail(error, has_hint=False)
        return
    status, _ = _fetched(f"{_local_url(flags)}/health")
    sys.exit(0 if status == 200 else 1)


PAGE = "/docs"

Facts = Mapping[str, Any]


@command(o.HERE, *o.setting_options("listen"), *o.TARGET, o.json_option())
def status(project: str, listen: str | None, **params: str | None) -> None:
    """Show whether the service is running, where its data is, and how much is stored.

    Exits with 1 if one of the service's checks failed.
    """
    target = Target.of(params)
    url = _url(target, listen)
    checks = _readiness(url)
    facts: dict[str, Any] = {
        "url": url, "is_running": checks is not None, "database": None,
        "project": project_name(project) or None, "memories": None,
        "checks": (checks or {}).get("checks", {}),
    }  # fmt: skip
    if not target.url:
        chosen = target.settings
        facts["database"] = "PostgreSQL" if chosen.database_url else str(chosen.db_path)
    if checks is not None or not target.url:
        try:
            facts |= run_on_target(params, lambda memories: _stored(memories, project))
        except out.NoDatabase:
            facts["database_is_missing"] = True
    if out.has_flag("json"):
        out.print_json(facts)
    else:
        for name, sentence in _sentences(facts):
            out.show(f"{name:<10}{out.one_line(sentence)}")
    sys.exit(1 if (checks or {}).get("status") == "failed" else 0)


@command(
    o.URL_OPTION, o.KEY_FILE, *o.setting_options("listen"),
    o.flag("--print", "is_printed", help="Print the address instead of opening it."),
)  # fmt: skip
def open_(url: str | None, key_file: str | None, listen: str | None, is_printed: bool) -> None:
    """Open the API documentation of the running service in a browser."""
    base = _url(Target.of({"url": url, "key_file": key_file}), listen)
    if _readiness(base) is None:
        raise out.CommandRefused(f"Nothing answers at {base}; `agentops-memory serve` starts it.")
    click.echo(base + PAGE)
    if not is_printed:
        click.launch(base + PAGE)


async def _stored(memories: "MemoryService", project: str) -> Facts:
    total = await memories.stats()
    own = await memories.stats(project)
    newest = await memories.recent(limit=1)
    return {
        "memories": total.total_observations,
        "projects": total.projects,
        "memories_of_project": own.total_observations,
        "last_saved_at": newest[0].created_at if newest else None,
    }


def _url(target: Target, listen: str | None) -> str:
    return target.url.rstrip("/") if target.url else _local_url({"listen": listen})


def _local_url(flags: Flags) -> str:
    address = settings(flags=flags).listen
    return f"http://{replace(address, host=address.host or '127.0.0.1')}"


def _fetched(url: str) -> tuple[int, bytes]:
    """Return the status and body of a response; 0 if nothing answers."""
    try:
        # No proxy: the service is never behind the one that the environment names.
        direct = urls.build_opener(urls.ProxyHandler({}))
        with direct.open(url, timeout=TIMEOUT) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, error.read()
    except (OSError, ValueError, HTTPException):
        return 0, b""


def _readiness(url: str) -> Facts | None:
    """Return the service's readiness report, or None if no service answers."""
    with suppress(ValueError):
        answer = json.loads(_fetched(f"{url}/health/ready")[1])
        return answer if isinstance(answer, dict) and "status" in answer else None
    return None


def _sentences(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts["is_running"]:
        yield "Service", f"running at {facts['url']}, its API at {facts['url']}{PAGE}"
    else:
        yield "Service", f"not running at {facts['url']}; `agentops-memory serve` starts it"
    if facts.get("database_is_missing"):
        yield "Data", f"no database at {facts['database']} yet; `agentops-memory save` creates it"
        return
    if facts["database"]:
        yield "Data", facts["database"]
    if facts["memories"] is not None:
        projects = out.counted(len(facts["projects"]), "project")
        yield "Stored", f"{out.count_memories(facts['memories'])} in {projects}"
        if facts["project"]:
            own = out.count_memories(facts["memories_of_project"])
            yield "Here", f"{own} in the project {facts['project']}"
        yield "Last save", out.ago(facts["last_saved_at"]) if facts["last_saved_at"] else "never"
    for name, check in facts["checks"].items():
        if check.get("status") != "ok":
            yield "Check", f"{name}: {check.get('status')}. {check.get('detail') or ''}"
    if facts["is_running"] and all(it.get("status") == "ok" for it in facts["checks"].values()):
        yield "Checks", f"{', '.join(facts['checks']) or 'all'}: ok"


@command(
    o.HERE, o.URL_OPTION, o.KEY_FILE, o.TENANT,
    *o.setting_options(
        "db_path", "allow_network_fs", "redaction_file", "tenant_quota", "dedupe_window",
        "recall_limit", "recall",
        "tools", "context_limit", "auto_summarize", "auto_save", "auto_search",
        "log_level", "log_format", "otlp_endpoint", "otlp_protocol",
    ),
)  # fmt: skip
def mcp(
    project: str, url: str | None, key_file: str | None, tenant: str | None, **flags: str | None
) -> None:
    """Serve MCP over standard input and output, until the input ends.

    An agent's host starts it in the agent's folder, whose repository is the project.
    The log goes to standard error. Without a URL it opens the database directly,
    even while a service uses it.
    """
    where = {"url": url, "key_file": key_file, "tenant": tenant, "db_path": flags["db_path"]}
    target = Target.of(where)
    chosen = place.chosen_settings(flags)
    name = project_name(clean(project))
    if not name:
        raise Invalid("validation failed: project is required; --project names it.")
    # Exit at once: Python's own handler would first wait for a line of input.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    form = chosen.log_format or "json"
    telemetry.configure_logging(chosen.log_level.upper(), sys.stderr, form)
    asyncio.run(_serve_mcp(chosen, target, name))


async def _serve_mcp(settings: Settings, target: Target, project: str) -> None:
    """Serve MCP on the target, with logs and traces; create the database if it is missing."""
    traces = telemetry.Telemetry.started(settings.otlp_endpoint, settings.otlp_protocol)
    try:
        opened: AbstractAsyncContextManager[MemoryService]
        if target.url is not None:
            opened = service_at(target)
        else:
            _, tenant = place.usable(target.db, target.tenant, may_make=True)
            opened = local.opened_here(settings, traces, tenant)
        async with opened as service:
            await stdio.Host(service, project, settings.profile).serve()
    finally:
        traces.stop()


DEMO = "demo"
PROMPT = "Why do saves fail with SQLITE_BUSY, and what did we set max_connections to?"

OBSERVATIONS: tuple[dict[str, Any], ...] = (
    {"type": "decision", "title": "WAL mode for the orders database",
     "content": "Switched the orders database to WAL with busy_timeout=5000: readers no longer "
     "block the writer, and the SQLITE_BUSY errors under load are gone.",
     "tags": ["sqlite", "performance"], "topic_key": "orders/database/journal-mode"},
    {"type": "config", "title": "max_connections is 40 on staging",
     "content": "max_connections went from 100 to 40 on staging, because each worker holds one "
     "connection and there are 32 workers.",
     "tags": ["postgres", "staging"]},
)  # fmt: skip
MESSAGES = (
    ("user", "Find out why saves to the orders database fail under load."),
    ("assistant", "Readers block the writer. WAL mode resolves that."),
    ("user", "Switch it, and note down what you changed."),
)


@command(
    o.option(
        "--url", metavar="URL", envvar=URL, default="http://127.0.0.1:7437", show_default=True,
        help=f"Address of the service; its key is in {o.KEY}. [{URL}]",
    )
)  # fmt: skip
def demo(url: str) -> None:
    """Save sample memories in a running service, and show the context an agent would get."""
    session = f"demo-{secrets.token_hex(4)}"
    with client.MemoryClient.from_environment(url=url, retries=0) as memory:
        memory.start_session(session, DEMO)
        click.echo(f"Session {session} in project {DEMO}:")
        for observation in OBSERVATIONS:
            saved = memory.save(session_id=session, project=DEMO, **observation)
            click.echo(f"  {saved.action:<12} #{saved.id}  {observation['title']}")
        messages = [client.Message(role=role, content=text) for role, text in MESSAGES]
        click.echo(f"  ended        {memory.end_session(session, messages).summary}")
        context = memory.context(project=DEMO, query=PROMPT, limit=2)
    click.echo(f"\nThe next prompt: {PROMPT}\nThe context that an agent would get with it:\n")
    out.print_context(context)
