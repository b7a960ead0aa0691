"""What the headers of a request must not say, and what those of every answer say."""

import re
from collections.abc import Callable, Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .origins import is_welcome

METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")

FOREIGN = "This page's origin may not ask the service; MEMORY_ALLOWED_ORIGINS names those that may."
RENAMED = "A service on this machine alone answers to localhost, 127.0.0.1 and [::1] only."

# Read by browsers alone: an answer is data, never a page, a script, a frame or a cached copy.
ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Origins:
    """An ASGI application that keeps web pages from the one inside it.

    A page sends its origin with whatever it may not simply embed. One that is
    neither the service's own nor allowed is refused with 403; an allowed one may
    read the answers, send the headers `sent`, and see those in `read`. A service on
    loopback has `names`, and refuses with 403 to be called by another: a page whose
    name has come to mean 127.0.0.1 is of its own origin.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed: frozenset[str],
        names: frozenset[str] | None,
        sent: Collection[str],
        read: Collection[str],
        denied: Callable[[str, str], ASGIApp],
    ) -> None:
        self._app = _readable(app, allowed, sent, read) if allowed else app
        self._allowed = allowed
        self._names = names
        self._denied = denied  # makes the answer, of the path and a sentence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sentence = self._refusal(scope) if scope["type"] == "http" else None
        if sentence is None:
            await self._app(scope, receive, send)
        else:
            await self._denied(scope["path"], sentence)(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        hosts, origins = _hosts_and_origins(scope)
        if self._names is not None and any(host_of(host) not in self._names for host in hosts):
            return RENAMED
        if not all(is_welcome(origin, hosts, self._allowed) for origin in origins):
            return FOREIGN
        return None


class SecurityHeaders:
    """An ASGI application that adds what every answer says, unless the one inside it says it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                said = {name for name, _ in headers}
                message["headers"] = [*headers, *(each for each in ALWAYS if each[0] not in said)]
            await send(message)

        await self._app(scope, receive, completed)


def host_of(authority: str) -> str | None:
    """The host of a Host header, which may name a port: in lower case, without it."""
    match = _AUTHORITY.fullmatch(authority)
    return match["host"].lower() if match else None


def _readable(
    app: ASGIApp, allowed: frozenset[str], sent: Collection[str], read: Collection[str]
) -> ASGIApp:
    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=METHODS,
        allow_headers=sent,
        expose_headers=read,
        allow_private_network=True,  # a page from elsewhere that asks this machine, as allowed
    )


def _hosts_and_origins(scope: Scope) -> tuple[list[str], list[str]]:
    found: dict[bytes, list[str]] = {b"host": [], b"origin": []}
    for name, value in scope["headers"]:
        if name in found:
            found[name].append(value.decode("latin-1"))
    return found[b"host"], found[b"origin"]


_AUTHORITY = re.compile(r"(?P<host>\[[^\]\s]+\]|[^:\[\]\s]+)(?::\d*)?", re.ASCII)
