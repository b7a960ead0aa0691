"""Where the service is, and how a question becomes a place below it."""

import os
import re
import ssl
from urllib.parse import quote, urlencode

import httpx

from .contract.call import Call, T
from .contract.errors import Invalid, Misconfigured

URL, KEY = "MEMORY_URL", "MEMORY_API_KEY"  # variables of the environment
DEFAULT = "http://127.0.0.1:7437"
PORTS = range(1, 1 << 16)

_LONE = re.compile("[\ud800-\udfff]")
_DOTS = {".": "%2E", "..": "%2E%2E"}  # as they are, they would mean a folder


def located(url: str, key: str | None) -> tuple[httpx.URL, str | None]:
    """The base of all requests, and the key: the one that is given, or the password in the url.

    Misconfigured, without naming the url or the key, if it cannot be one or brings another key.
    """
    base = _address(url)
    if not base.userinfo:
        return base, key
    if b":" not in base.userinfo:
        raise Misconfigured("The url of the service has a user; a key stands behind it: user:key@.")
    if key and base.password and key != base.password:
        raise Misconfigured("The url of the service brings another key than the one that is given.")
    return base.copy_with(username="", password=""), key or base.password or None


def _address(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        # The cause is left out: it repeats what may be a key.
        raise Misconfigured("The url of the service cannot be read as one.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or "%" in parsed.host:
        raise Misconfigured("The url of the service begins with http:// or https:// and a host.")
    if parsed.port is not None and parsed.port not in PORTS:
        raise Misconfigured("The url of the service has a port that there is not.")
    if parsed.query or parsed.fragment:
        raise Misconfigured("The url of the service ends with its path: no query, no fragment.")
    return parsed


def trust(base: httpx.URL, verify: ssl.SSLContext | bool) -> ssl.SSLContext | bool:
    """Whom to believe. Without TLS nobody: to load the authorities takes 17 ms."""
    return verify if base.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def from_environment(url: str | None, key: str | None) -> tuple[str, str | None]:
    """The url and the key; those of the environment in the place of what is not given."""
    return url or os.environ.get(URL) or DEFAULT, key or os.environ.get(KEY) or None


def place(base: httpx.URL, call: Call[T]) -> httpx.URL:
    """Where the call goes."""
    path = base.raw_path.partition(b"?")[0].rstrip(b"/").decode("ascii")
    path += "".join(f"/{_DOTS.get(step) or quote(_clean(step), safe='')}" for step in call.path)
    query = urlencode({name: _clean(value) for name, value in call.query.items()})
    try:
        return base.copy_with(raw_path=f"{path}?{query}".rstrip("?").encode("ascii"))
    except httpx.InvalidURL as error:
        raise Invalid("What is asked with is longer than the address of a request.") from error


def _clean(text: str) -> str:
    """The text as it can be sent: what has no UTF-8 becomes U+FFFD, as the service has it."""
    return _LONE.sub("\ufffd", text)
