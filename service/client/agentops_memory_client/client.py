"""What both clients share: their parameters, and the headers of every request."""

import os
import re
import ssl
from datetime import timedelta
from typing import Any, ClassVar, Generic, Self, TypeVar

import httpx

from .contract.errors import Misconfigured
from .transport.address import base_and_key, tls_context
from .transport.exchange import Backend, Exchange
from .transport.retries import RETRIES, TIMEOUT, RetryPolicy, Timing
from .version import __version__

DEFAULT_URL = "http://127.0.0.1:7437"

Transport = TypeVar("Transport")

_KEY = re.compile(r"[!-~]+")


class Client(Generic[Transport]):
    """A client of the service at `url`, which may have a path; Misconfigured if it is invalid.

    `timeout` is the connect timeout, and the read timeout between two pieces of
    an answer; `retries` is how often a call is sent again (docs/client.md says
    when). The `key`, or the password in the url, is sent to the url's host and
    nowhere else: redirects are not followed, and the proxy variables of the
    environment are ignored. `verify` is for https: an SSLContext with
    certificate authorities of your own. `transport` is httpx's.
    """

    _timing: ClassVar[Timing[Any]]

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        timeout: timedelta = TIMEOUT,
        retries: int = RETRIES,
        verify: ssl.SSLContext | bool = True,
        transport: Transport | None = None,
    ) -> None:
        base, own_key = base_and_key(url, key)
        self._exchange = Exchange(
            base=base,
            policy=RetryPolicy(timeout=timeout, retries=retries, timing=self._timing),
            headers=_headers(base, own_key),
            backend=self._backend(transport, tls_context(base, verify)),
        )

    @classmethod
    def from_environment(
        cls,
        *,
        url: str | None = None,
        key: str | None = None,
        timeout: timedelta = TIMEOUT,
        retries: int = RETRIES,
    ) -> Self:
        """A client of the service that MEMORY_URL names, with the key in MEMORY_API_KEY.

        Arguments take precedence; an empty variable counts as unset.
        """
        named = url or os.environ.get("MEMORY_URL") or DEFAULT_URL
        known = key or os.environ.get("MEMORY_API_KEY") or None
        return cls(named, key=known, timeout=timeout, retries=retries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchange.url!r})"

    def _backend(self, transport: Transport | None, verify: ssl.SSLContext | bool) -> Backend:
        raise NotImplementedError


def _headers(base: httpx.URL, key: str | None) -> httpx.Headers:
    """The headers of every request. Misconfigured for what cannot be a key."""
    headers = httpx.Headers(
        {
            "Host": base.netloc.decode("ascii"),
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"agentops-memory-python/{__version__}",
        }
    )
    if key and not _KEY.fullmatch(key):
        raise Misconfigured("The key has characters that no key has.")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers
