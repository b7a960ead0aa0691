"""The service's base URL, and the URL of each call below it."""

import re
import ssl
from urllib.parse import quote, urlencode

import httpx

from ..contract.call import Call
from ..contract.errors import Invalid, Misconfigured

PORTS = range(1, 1 << 16)

_SURROGATE = re.compile("[\ud800-\udfff]")
_DOTS = {".": "%2E", "..": "%2E%2E"}  # unquoted they would be relative segments


def base_and_key(url: str, key: str | None) -> tuple[httpx.URL, str | None]:
    """The base URL without its userinfo, and the key: the argument, or the password in the url.

    Misconfigured, without quoting the url or the key, for an invalid url, or one with another key.
    """
    base = _parsed(url)
    if not base.userinfo:
        return base, key
    if b":" not in base.userinfo:
        raise Misconfigured("The service URL has a user but no key; write user:key@.")
    if key and base.password and key != base.password:
        raise Misconfigured("The service URL contains a key other than the one that was passed.")
    return base.copy_with(username="", password=""), key or base.password or None


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        # The cause is left out: it repeats what may be a key.
        raise Misconfigured("The service URL is not a valid URL.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or "%" in parsed.host:
        raise Misconfigured("The service URL must begin with http:// or https:// and name a host.")
    if parsed.port is not None and parsed.port not in PORTS:
        raise Misconfigured("The port of the service URL is not valid.")
    if parsed.query or parsed.fragment:
        raise Misconfigured("The service URL must end with its path, with no query or fragment.")
    return parsed


def tls_context(base: httpx.URL, verify: ssl.SSLContext | bool) -> ssl.SSLContext | bool:
    """What httpx verifies with; empty for plain http, as loading the authorities takes 17 ms."""
    return verify if base.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def call_url(base: httpx.URL, call: Call[object]) -> httpx.URL:
    """The URL of the call; Invalid if it is too long."""
    path = base.raw_path.partition(b"?")[0].rstrip(b"/").decode("ascii")
    path += "".join(f"/{_DOTS.get(step) or quote(_utf8(step), safe='')}" for step in call.path)
    query = urlencode([(name, _utf8(it)) for name, values in call.query.items() for it in values])
    try:
        return base.copy_with(raw_path=f"{path}?{query}".rstrip("?").encode("ascii"))
    except httpx.InvalidURL as error:
        raise Invalid("The arguments are too long for the URL of a request.") from error


def _utf8(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, as the service stores it."""
    return _SURROGATE.sub("\ufffd", text)
