"""What both clients are made of: where the service is, how patient they are, and a key."""

import ssl
from datetime import timedelta
from typing import Any, ClassVar, Generic, Self, TypeVar

from .address import DEFAULT, from_environment, located, trust
from .exchange import Exchange, Line
from .retries import RETRIES, TIMEOUT, Patience, Surroundings

Transport = TypeVar("Transport")


class Client(Generic[Transport]):
    """A running service at a url, which may have a path; Misconfigured if it cannot be one.

    `timeout` is how long the service may be silent, and `retries` how often a
    call is sent again; docs/client.md says when. The `key`, or the password in
    the url, is sent to the url's host and nowhere else: redirects are not
    followed, and proxies that the environment names are not used. `verify` is
    for https: a context of one's own has authorities of one's own. `transport`
    is httpx's.
    """

    _around: ClassVar[Surroundings[Any]]

    def __init__(
        self,
        url: str = DEFAULT,
        *,
        key: str | None = None,
        timeout: timedelta = TIMEOUT,
        retries: int = RETRIES,
        verify: ssl.SSLContext | bool = True,
        transport: Transport | None = None,
    ) -> None:
        base, own_key = located(url, key)
        patience = Patience(timeout=timeout, retries=retries, around=self._around)
        line = self._line(transport, trust(base, verify))
        self._exchange = Exchange.with_service(base, own_key, patience=patience, line=line)

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

        What is given goes before the environment, and an empty variable is an unset one.
        """
        named, known = from_environment(url, key)
        return cls(named, key=known, timeout=timeout, retries=retries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchange.url!r})"

    def _line(self, transport: Transport | None, trusted: ssl.SSLContext | bool) -> Line:
        raise NotImplementedError
