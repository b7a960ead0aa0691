"""`demo`: a small real session through the running service, and what an agent would get."""

import secrets
from typing import Any

import click

from agentops_memory_client import MemoryClient
from agentops_memory_client.contract.errors import MemoryServiceError, Misconfigured, Unreachable
from agentops_memory_client.contract.models import Message

from ..catalog import command
from ..errors import CommandRefused
from ..options import KEY, URL
from ..print_results import print_context

PROJECT = "demo"
PROMPT = "Why do saves fail with SQLITE_BUSY, and what did we set max_connections to?"

OBSERVATIONS: tuple[dict[str, Any], ...] = (
    {
        "type": "decision",
        "title": "WAL mode for the orders database",
        "content": "Switched the orders database to WAL with busy_timeout=5000: readers no "
        "longer block the writer, and the SQLITE_BUSY errors under load are gone.",
        "tags": ["sqlite", "performance"],
        "topic_key": "orders/database/journal-mode",
    },
    {
        "type": "config",
        "title": "max_connections is 40 on staging",
        "content": "max_connections went from 100 to 40 on staging, because each worker holds "
        "one connection and there are 32 workers.",
        "tags": ["postgres", "staging"],
    },
    {
        "type": "bugfix",
        "title": "Webhook retries created duplicate invoices",
        "content": "The retry handler made a new idempotency key for each attempt. The key is "
        "now derived from the event id.",
        "tags": ["billing"],
    },
)
MESSAGES = (
    Message(role="user", content="Find out why saves to the orders database fail under load."),
    Message(role="assistant", content="Readers block the writer. WAL mode resolves that."),
    Message(role="user", content="Switch it, and note down what you changed."),
)


class DemoFailed(CommandRefused):
    """The service did not do its part."""


@command()
@click.option(
    "--url",
    metavar="URL",
    envvar=URL,
    default="http://127.0.0.1:7437",
    show_default=True,
    help=f"Where the service is; its key is in {KEY}. [{URL}]",
)
def demo(url: str) -> None:
    """Save a small session through the running service, and show the context it gives."""
    try:
        with MemoryClient.from_environment(url=url, retries=0) as memory:
            _show(memory)
    except (Misconfigured, Unreachable) as error:
        raise DemoFailed(str(error)) from error
    except MemoryServiceError as error:
        raise DemoFailed(f"What answers there refused POST /sessions: {error}") from error


def _show(memory: MemoryClient) -> None:
    session = f"demo-{secrets.token_hex(4)}"
    memory.start_session(session, PROJECT)
    click.echo(f"Session {session} in project {PROJECT}:")
    for observation in OBSERVATIONS:
        saved = memory.save(session_id=session, project=PROJECT, **observation)
        click.echo(f"  {saved.action:<12} #{saved.id}  {observation['title']}")
    ended = memory.end_session(session, MESSAGES)
    click.echo(f"  ended        {ended.summary}")
    click.echo(f"\nThe next prompt: {PROMPT}\nThe context that an agent would get with it:\n")
    print_context(memory.context(project=PROJECT, query=PROMPT, limit=2), as_json=False)
