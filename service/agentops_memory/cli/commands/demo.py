"""`demo`: a small real session through the running service, and what an agent would get."""

import json
import os
import re
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import click

from ..catalog import command
from ..errors import CommandRefused
from ..options import KEY, URL
from ..output import one_line

PROJECT = "demo"
TIMEOUT = 10.0  # seconds
NO_ADDRESS = "The url is no http:// or https:// address."
PROMPT = "Why do saves fail with SQLITE_BUSY, and what did we set max_connections to?"

OBSERVATIONS = (
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
    {"role": "user", "content": "Find out why saves to the orders database fail under load."},
    {"role": "assistant", "content": "Readers block the writer. WAL mode resolves that."},
    {"role": "user", "content": "Switch it, and note down what you changed."},
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
    service, key = _located(url)
    try:
        _show(partial(_call, service, key))
    except (KeyError, TypeError) as error:
        raise DemoFailed(f"{service} answers, but not as the service does.") from error


def _located(url: str) -> tuple[str, str | None]:
    """Where the service is, and the key: that of the environment, or the password in the url."""
    key = os.environ.get(KEY) or None
    try:
        parts = urlsplit(url)
        named, _ = unquote(parts.password or "") or None, parts.port
    except ValueError:
        raise DemoFailed(NO_ADDRESS) from None  # the cause repeats what may be a key
    is_base = parts.hostname and not (parts.query or parts.fragment or "@" in parts.path)
    if parts.scheme not in ("http", "https") or not is_base:
        raise DemoFailed(NO_ADDRESS)
    if parts.username and parts.password is None:
        raise DemoFailed("The url has a user; a key stands behind it: user:key@.")
    if key and named and key != named:
        raise DemoFailed(f"The url brings another key than {KEY}; give one of them.")
    key = key or named
    if key and not re.fullmatch("[!-~]+", key):
        raise DemoFailed("The key has characters that no key has.")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), key


def _show(ask: Callable[..., Any]) -> None:
    session = f"demo-{secrets.token_hex(4)}"
    ask("POST", "/sessions", {"id": session, "project": PROJECT})
    click.echo(f"Session {session} in project {PROJECT}:")
    for observation in OBSERVATIONS:
        body = {"session_id": session, "project": PROJECT, **observation}
        saved = ask("POST", "/observations", body)
        click.echo(f"  {saved['action']:<12} #{saved['id']}  {observation['title']}")
    ended = ask("POST", f"/sessions/{session}/end", {"messages": MESSAGES})
    click.echo(f"  ended        {ended['summary']}")
    click.echo(f"\nThe next prompt: {PROMPT}\nThe context that an agent would get with it:\n")
    query = urlencode({"project": PROJECT, "query": PROMPT, "limit": 2})
    click.echo(_injected(ask("GET", f"/context?{query}")))


def _injected(context: dict[str, Any]) -> str:
    sessions = [f"- {session['summary']}" for session in context["recent_sessions"]]
    memories = [
        f"- [{found['type']}] {found['title']}: {found['content']}"
        for found in context["recent_observations"]
    ]
    return "\n".join([*_block("sessions", sessions), *_block("context", memories)])


def _block(name: str, lines: list[str]) -> list[str]:
    return [f"<memory:{name}>", *lines, f"</memory:{name}>"] if lines else []


def _call(url: str, key: str | None, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        request = urllib.request.Request(url.rstrip("/") + path, data, headers, method=method)  # noqa: S310
        with _DIRECT.open(request, timeout=TIMEOUT) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise DemoFailed(f"{url} refused {method} {path}: {_sentence(error)}") from error
    except (OSError, ValueError, HTTPException) as error:
        raise DemoFailed(
            f"{url} does not answer as the service does ({getattr(error, 'reason', error)}). "
            f"Start it with `agentops-memory serve`."
        ) from error


def _sentence(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return one_line(str(json.loads(text)["error"]))
    except (ValueError, KeyError, TypeError):
        return one_line(f"{error.code} {text[:200]}")


# The service is never behind the proxy that the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
