"""The values of settings, and how each is read; what cannot be read is a ValueError."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from agentops_memory_client.contract.errors import SERVER, install_command

from ..light import dataclass
from ..recall.features import ALL, Feature, Features

LONGEST = timedelta(days=292 * 365)  # as in Go; a window reaches back from now
MINUTE = timedelta(minutes=1)
MOST_REQUESTS = 1_000_000  # of a limit
NANOSECONDS = 1_000_000_000  # in a second
MAX_PORT = 65535
PORTS = {"http": 80, "https": 443}

DEFAULT_TOOLS = ("mem_save", "mem_search", "mem_context")
ALL_TOOLS = (
    *DEFAULT_TOOLS,
    "mem_get", "mem_update", "mem_delete", "mem_history", "mem_timeline", "mem_stats",
    "mem_confirm", "mem_review",
    "mem_session_start", "mem_session_end", "mem_suggest_topic_key",
)  # fmt: skip
SETS = {"default": DEFAULT_TOOLS, "all": ALL_TOOLS}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; an empty host means every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many requests a unit of time: all at once after a quiet unit, else evenly."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"

    @property
    def nanoseconds(self) -> int:
        return _CLOCK[self.unit] * NANOSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What an agent is offered. A context limit of 0 asks for no context, and gives none."""

    tools: tuple[str, ...] = DEFAULT_TOOLS
    context_limit: int = 5
    auto_summarize: bool = True  # a session's end takes messages, and makes its summary of them
    auto_save: bool = True  # off: no mem_save
    auto_search: bool = True  # off: no mem_search

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the tools, in the order of all."""
        off = {"mem_save": not self.auto_save, "mem_search": not self.auto_search}
        return tuple(name for name in ALL_TOOLS if name in self.tools and not off.get(name))

    def offers(self, tool: str) -> bool:
        return tool in self.offered


def duration(text: str) -> timedelta:
    """A Go-style duration that is not negative: `15m`, `1h30m`, `500ms`, `0`."""
    return _time(text, _UNITS, "duration such as 15m, 1h30m, 90s or 0")


def retention(text: str) -> timedelta:
    """How long something is kept: a duration, which may count in days: `400d`, `36h`, `0`."""
    return _time(text, _UNITS_OF_KEEPING, "duration such as 400d, 36h, 1d12h or 0")


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    return lambda text: parse(text) if text else None


def database_url(text: str) -> str | None:
    """A URL of PostgreSQL, or none; a refusal quotes no part of it."""
    if text and not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("is not a URL such as postgresql://user@host/database")
    if text and find_spec("psycopg") is None:
        command = install_command(SERVER, "postgresql")
        raise ValueError(f"needs the package psycopg: {command}")
    return text or None


def periods(text: str) -> dict[str, timedelta]:
    """Times by names: `config=90d,decision=365d`."""
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    named = {name.strip(): retention(time.strip() or "0") for name, _, time in pairs}
    if "" in named or not all(named.values()):
        raise ValueError("must be a list of types with times, such as config=90d,decision=365d")
    return named


def retained(text: str) -> int:
    """How many are kept: a number that is not negative, of at most nine digits."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a number such as 100, or 0 for all")
    return int(text)


def _time(text: str, units: Mapping[str, float], what: str) -> timedelta:
    part = rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(units)})"
    if not re.fullmatch(rf"\+?(?:0|(?:{part})+)", text, re.ASCII):
        raise ValueError(f"is not a {what}")
    amounts = re.findall(part, text, re.ASCII)
    seconds = sum(float(count) * units[unit] for count, unit in amounts)
    if seconds > LONGEST.total_seconds():
        raise ValueError("is longer than 292 years")
    return timedelta(seconds=seconds)


def interval(text: str) -> timedelta:
    time = duration(text)
    if timedelta(0) < time < MINUTE:
        raise ValueError("is less than a minute")
    return time


def between(least: int, most: int) -> Callable[[str], int]:
    """A whole number in these bounds, without a sign and without zeros before it."""

    def parse(text: str) -> int:
        is_number = _NUMBER.fullmatch(text) and text == str(int(text))
        if not is_number or not least <= int(text) <= most:
            raise ValueError(f"is not a number from {least} to {most}")
        return int(text)

    return parse


def address(text: str) -> Address:
    """An address to listen on: `:7437`, `127.0.0.1:7437`, `[::1]:7437`."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > MAX_PORT:
        raise ValueError("is not an address such as :7437, 127.0.0.1:7437 or [::1]:7437")
    return Address(host=match["v6"] or match["host"] or "", port=int(match["port"]))


def file(text: str) -> Path:
    """An absolute path: nothing that SQLite would take for anything but a file's name."""
    path = Path(text).absolute()
    if not path.name:
        raise ValueError("is the root of the file system, not a file")
    return path


def optional_file(text: str) -> Path | None:
    return Path(text).absolute() if text else None


def endpoint(text: str) -> str:
    """Where spans go: `collector:4317` or a URL."""
    with suppress(ValueError):
        url = urlsplit(text if "://" in text else f"http://{text}")
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return text
    raise ValueError("is not an endpoint such as collector:4317 or http://collector:4318")


def size(text: str) -> int:
    """A number of bytes: `1048576`, `256MiB`, `1GiB`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("is not a size such as 1048576, 256MiB or 1GiB")
    return int(match["count"]) * _SIZES[(match["unit"] or "").lower()]


def size_or_none(text: str) -> int:
    return 0 if text == "0" else size(text)


def allowed_origins(text: str) -> frozenset[str]:
    """Origins of pages, separated by commas: `https://console.example`. `*` is none."""
    origins = {canonical_origin(part.strip()) for part in text.split(",") if part.strip()}
    if None in origins:
        raise ValueError(
            "contains something other than an origin such as https://console.example "
            "or http://localhost:3000, without a path and without *"
        )
    return frozenset(origin for origin in origins if origin is not None)


def canonical_origin(origin: str) -> str | None:
    """The origin as a browser writes it: in lower case, without the scheme's own port."""
    match = _ORIGIN.fullmatch(origin.lower())
    if match is None or int(match["port"] or 0) > MAX_PORT:
        return None
    start = f"{match['scheme']}://{match['host']}"
    port = int(match["port"] or PORTS[match["scheme"]])
    return start if port == PORTS[match["scheme"]] else f"{start}:{port}"


def rate(text: str) -> Rate | None:
    """A number of requests and a unit: `50/s`, `600/m`, `20000/h`; None for no limit."""
    if not text:
        return None
    match = _RATE.fullmatch(text)
    if match is None or not 1 <= int(match["count"]) <= MOST_REQUESTS:
        raise ValueError(f"is not a rate such as 50/s, 600/m or 20000/h, from 1 to {MOST_REQUESTS}")
    return Rate(count=int(match["count"]), unit=match["unit"])


def features(text: str) -> Features:
    """All techniques of recall but those named: `typos,context`."""
    try:
        return ALL - {Feature(name.strip()) for name in text.split(",") if name.strip()}
    except ValueError as error:
        raise ValueError(f"contains something other than {', '.join(Feature)}") from error


def tools(text: str) -> tuple[str, ...]:
    """The tools of an agent: `default`, `all`, or names with commas."""
    words = [name.strip() for name in text.split(",") if name.strip()]
    names = dict.fromkeys(name for each in words for name in SETS.get(each, (each,)))
    unknown = [name for name in names if name not in ALL_TOOLS]
    if unknown or not names:
        raise ValueError(f"is not default, all, or names among {', '.join(ALL_TOOLS)}")
    return tuple(names)


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return text.lower()

    return parse


def switch(text: str) -> bool:
    """Whether something is on: `on`, `true`, `yes`, `1`, or the opposite of each."""
    if text.lower() not in _SWITCH:
        raise ValueError("must be on or off")
    return _SWITCH[text.lower()]


_SWITCH = {"on": True, "true": True, "yes": True, "1": True}
_SWITCH |= {"off": False, "false": False, "no": False, "0": False}
_CLOCK = {"s": 1, "m": 60, "h": 3600}  # seconds
_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, **_CLOCK}
_UNITS_OF_KEEPING = _UNITS | {"d": 24 * 3600}
_NUMBER = re.compile(r"[0-9]{1,9}")
_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^:\s/\[\]]*)):(?P<port>\d{1,5})",
    re.ASCII,
)
_SIZE = re.compile(r"(?P<count>[1-9]\d{0,17})(?P<unit>KiB|MiB|GiB)?", re.ASCII | re.IGNORECASE)
_RATE = re.compile(r"(?P<count>\d{1,7})/(?P<unit>[smh])", re.ASCII)
_ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?", re.ASCII
)
_SIZES = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


IN_WORKING_FOLDER = "./data/memory.db"


def default_db_path(mounted: Path = Path("/data")) -> str:
    """`/data/memory.db` where that folder can be written, else one below this folder."""
    usable = mounted.is_dir() and os.access(mounted, os.W_OK)
    return str(mounted / "memory.db") if usable else IN_WORKING_FOLDER
