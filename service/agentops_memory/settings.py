"""One frozen Settings, which declares each setting once: its field, variable, flag and parser.

First come the types of values and their parsers, which raise ValueError for invalid texts.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from agentops_memory_client.contract.models import SERVER, install_command

from .errors import SettingRefused
from .light import Field, dataclass, field, fields
from .memory.space import LARGEST_CAPACITY, Capacities, Retentions

LONGEST = timedelta(days=292 * 365)  # as in Go; subtracted from now, it is still a valid time
MINUTE = timedelta(minutes=1)
MOST_REQUESTS = 1_000_000  # the highest count of a rate limit
NANOSECONDS = 1_000_000_000  # in a second
MAX_PORT = 65535
MOST_KEPT = 999_999_999  # the highest number of revisions to keep
PORTS = {"http": 80, "https": 443}

DEFAULT_TOOLS = ("mem_save", "mem_search", "mem_context")
ALL_TOOLS = (
    *DEFAULT_TOOLS,
    "mem_get", "mem_update", "mem_delete", "mem_history", "mem_timeline", "mem_stats",
    "mem_confirm", "mem_review",
    "mem_session_start", "mem_session_end", "mem_suggest_topic_key",
)  # fmt: skip
TOOL_SETS = {"default": DEFAULT_TOOLS, "all": ALL_TOOLS}

T = TypeVar("T")
OF_FILES = (
    "this setting is for files; PostgreSQL has its own backups: pg_dump, or base backups with "
    "point-in-time recovery."
)
FILE_SUFFIXES = {"keys_file": ".keys", "redaction_file": ".redaction", "seal_file": ".seal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address to listen on; an empty host means all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`count` requests per unit of time: all at once after a quiet unit, otherwise evenly."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"

    @property
    def nanoseconds(self) -> int:
        return _CLOCK[self.unit] * NANOSECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The tools that an agent gets. A context limit of 0 turns contexts off."""

    tools: tuple[str, ...] = DEFAULT_TOOLS
    context_limit: int = 5
    auto_summarize: bool = True  # whether ending a session takes messages and summarizes them
    auto_save: bool = True  # off: no mem_save
    auto_search: bool = True  # off: no mem_search

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the offered tools, in the order of `ALL_TOOLS`."""
        off = {"mem_save": not self.auto_save, "mem_search": not self.auto_search}
        return tuple(name for name in ALL_TOOLS if name in self.tools and not off.get(name))

    def offers(self, tool: str) -> bool:
        return tool in self.offered


def duration(text: str) -> timedelta:
    """Parse a Go-style duration that is not negative: `15m`, `1h30m`, `500ms`, `0`."""
    return _time(text, _UNITS, "duration such as 15m, 1h30m, 90s or 0")


def retention_period(text: str) -> timedelta:
    """Parse a retention period, a duration that may have days: `400d`, `36h`, `0`."""
    return _time(text, _UNITS_OF_KEEPING, "duration such as 400d, 36h, 1d12h or 0")


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    return lambda text: parse(text) if text else None


def postgresql_url(text: str) -> str | None:
    """Parse a PostgreSQL URL, or none; a refusal quotes no part of it."""
    if text and not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("is not a URL such as postgresql://user@host/database")
    if text and find_spec("psycopg") is None:
        command = install_command(SERVER, "postgresql")
        raise ValueError(f"needs the package psycopg: {command}")
    return text or None


def periods(text: str) -> dict[str, timedelta]:
    """Parse periods by name: `config=90d,decision=365d`."""
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    named = {name.strip(): retention_period(time.strip() or "0") for name, _, time in pairs}
    if "" in named or not all(named.values()):
        raise ValueError("must be a list of types with times, such as config=90d,decision=365d")
    return named


def _time(text: str, units: Mapping[str, float], noun: str) -> timedelta:
    part = rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(units)})"
    if not re.fullmatch(rf"\+?(?:0|(?:{part})+)", text, re.ASCII):
        raise ValueError(f"is not a {noun}")
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
    """Return a parser of whole numbers in these bounds, without a sign or leading zeros."""

    def parse(text: str) -> int:
        is_number = _NUMBER.fullmatch(text) and text == str(int(text))
        if not is_number or not least <= int(text) <= most:
            raise ValueError(f"is not a number from {least} to {most}")
        return int(text)

    return parse


def address(text: str) -> Address:
    """Parse an address to listen on: `:7437`, `127.0.0.1:7437`, `[::1]:7437`."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > MAX_PORT:
        raise ValueError("is not an address such as :7437, 127.0.0.1:7437 or [::1]:7437")
    return Address(host=match["v6"] or match["host"] or "", port=int(match["port"]))


def file(text: str) -> Path:
    """Return an absolute path, which SQLite takes for nothing but a file's name."""
    path = Path(text).absolute()
    if not path.name:
        raise ValueError("is the root of the file system, not a file")
    return path


def endpoint(text: str) -> str:
    """Parse the endpoint for spans: `collector:4317` or a URL."""
    with suppress(ValueError):
        url = urlsplit(text if "://" in text else f"http://{text}")
        if url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return text
    raise ValueError("is not an endpoint such as collector:4317 or http://collector:4318")


def size(text: str) -> int:
    """Parse a number of bytes: `1048576`, `256MiB`, `1GiB`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("is not a size such as 1048576, 256MiB or 1GiB")
    return int(match["count"]) * _SIZES[(match["unit"] or "").lower()]


def origins(text: str) -> frozenset[str]:
    """Parse origins of pages, separated by commas: `https://console.example`. `*` is invalid."""
    origins = {canonical_origin(part.strip()) for part in text.split(",") if part.strip()}
    if None in origins:
        raise ValueError(
            "contains something other than an origin such as https://console.example "
            "or http://localhost:3000, without a path and without *"
        )
    return frozenset(origin for origin in origins if origin is not None)


def canonical_origin(origin: str) -> str | None:
    """Return the origin as a browser writes it: in lower case, without the default port."""
    match = _ORIGIN.fullmatch(origin.lower())
    if match is None or int(match["port"] or 0) > MAX_PORT:
        return None
    start = f"{match['scheme']}://{match['host']}"
    port = int(match["port"] or PORTS[match["scheme"]])
    return start if port == PORTS[match["scheme"]] else f"{start}:{port}"


def rate(text: str) -> Rate | None:
    """Parse a number of requests per unit: `50/s`, `600/m`, `20000/h`; None for no limit."""
    if not text:
        return None
    match = _RATE.fullmatch(text)
    if match is None or not 1 <= int(match["count"]) <= MOST_REQUESTS:
        raise ValueError(f"is not a rate such as 50/s, 600/m or 20000/h, from 1 to {MOST_REQUESTS}")
    return Rate(count=int(match["count"]), unit=match["unit"])


def tool_names(text: str) -> tuple[str, ...]:
    """Parse the tools of an agent: `default`, `all`, or names separated by commas."""
    words = [name.strip() for name in text.split(",") if name.strip()]
    names = dict.fromkeys(name for each in words for name in TOOL_SETS.get(each, (each,)))
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
    """Parse a switch: `on`, `true`, `yes`, `1`, or their opposites."""
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
    """Return `/data/memory.db` if its folder is writable, else a path in the working folder."""
    usable = mounted.is_dir() and os.access(mounted, os.W_OK)
    return str(mounted / "memory.db") if usable else IN_WORKING_FOLDER


class Variable(NamedTuple):
    """The source of a setting: its environment variable, its flag and its parser."""

    field: str
    name: str
    flag: str  # empty for a secret: other users can see a process's arguments
    kind: str
    default: str
    parse: Callable[[str], Any]
    help: str


def setting(
    kind: str,
    parse: Callable[[str], Any],
    default: str = "",
    *,
    help: str,  # noqa: A002 - click's name
    name: str = "",
    flag: str = "",
    is_secret: bool = False,
) -> Any:
    """Return a field with its Variable; by default MEMORY_ITS_NAME and --its-name."""
    row = {"name": name, "flag": flag, "kind": kind, "default": default, "parse": parse}
    return field(repr=not is_secret, metadata=row | {"help": help})


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of an operator; a row has kind, parser and default."""

    # The URL of the database is a secret, and has no flag.
    database_url: str | None = setting("URL", postgresql_url, is_secret=True,
        help="URL of a PostgreSQL database to use instead of the file.")
    database_pool: int = setting("NUMBER", between(1, 1000), "8",
        help="Maximum number of PostgreSQL connections that a process uses for requests.")
    database_retention: timedelta | None = setting("TIME", optional(retention_period),
        help="How long the write-ahead log and the backups of PostgreSQL are kept, so that "
        "receipts of erasures can say when the bytes are gone. Unset: they never say so.")
    listen: Address = setting("ADDRESS", address, "127.0.0.1:7437",
        help="Address to listen on; without a host, all interfaces.")
    db_path: Path = setting("FILE", file, flag="--db",
        help="The database file. Unset, it is /data/memory.db where /data can be written, else "
        "./data/memory.db.")
    lock_wait: timedelta = setting("DURATION", duration, "30s",
        help="How long a starting service waits for another one that has the database open; 0 "
        "means not at all.")
    allow_network_fs: bool = setting("SWITCH", switch, "off",
        help="Allow the database on a network file system, where it may be damaged if another "
        "machine opens it.")
    auth: str = setting(  # "", "none" or "keys"
        "MODE", one_of("", "none", "keys"),
        help="Who has access before the first key is created: everyone (none) or no one (keys). "
        "Unset: everyone, but the service then listens only on a loopback address.")
    keys_file: Path = setting("FILE", optional(file),
        help="The file of the keys. Unset: the database's path plus .keys.")
    redaction_file: Path = setting("FILE", optional(file),
        help="The file of exceptions to redaction, by tenant. Unset: the database's path plus "
        ".redaction.")
    seal_file: Path = setting("FILE", optional(file),
        help="The keys that encrypt confidential values of agents' memory. Unset, it is the "
        "database's path with .seal at its end, made with the first such value.")
    tenant_quota: int | None = setting(  # bytes
        "SIZE", optional(size),
        help="Maximum size of a tenant's database; beyond it saves are refused. Unset: limited "
        "only by the disk.")
    dedupe_window: timedelta = setting("DURATION", duration, "15m",
        help="How long a save of the same content counts as a duplicate; 0 turns this off.")
    drain: timedelta = setting("DURATION", duration, "1s",
        help="How long requests are still served after SIGTERM, while /health fails.")
    recall_limit: timedelta = setting("DURATION", duration, "2s",
        help="Timeout of a search by words; after it, a context returns the newest memories "
        "instead.")
    index_cache: int = setting(  # bytes
        "SIZE", lambda text: 0 if text == "0" else size(text), "64MiB",
        help="Size of the in-memory cache of the full-text index; 0 turns it off.")
    episodic_capacity: int = setting("NUMBER", between(1, LARGEST_CAPACITY), "1000",
        help="Maximum number of episodic entries of an agent; the next one evicts an older one.")
    working_capacity: int = setting("NUMBER", between(1, 10_000), "1000",
        help="Maximum number of working entries of an agent; the next one is refused.")
    sweep_every: timedelta = setting("DURATION", duration, "10m",
        help="How often the service checks its index against the memories; 0 turns this off.")
    review_after: Mapping[str, timedelta] = setting("PERIODS", periods,
        help="Review period for each type of memory, such as config=90d, separated by commas. "
        "Unset: only memories with a review date are due.")
    session_idle: timedelta = setting("DURATION", duration, "24h",
        help="Idle time after which a session ends, and the secrets of a run are forgotten; 0 "
        "means never.")
    keep_deleted: timedelta = setting("TIME", retention_period, "0",
        help="How long deleted data can be restored, such as 90d; 0 means forever.")
    keep_expired: timedelta = setting("TIME", retention_period, "30d",
        help="How long an observation is kept after it expires; 0 means forever.")
    keep_revisions: int = setting("NUMBER", between(0, MOST_KEPT), "100",
        help="How many of the newest revisions of an observation are kept; 0 means all.")
    keep_idempotency: timedelta = setting("TIME", retention_period, "24h",
        help="How long an idempotency key is remembered; 0 means forever.")
    keep_audit: timedelta = setting("TIME", retention_period, "400d",
        help="How long lines of the audit file are kept; 0 means forever.")
    keep_receipts: timedelta = setting("TIME", retention_period, "0",
        help="How long receipts of erasures are kept once the bytes are gone; 0 means forever.")
    keep_events: timedelta = setting("TIME", retention_period, "30d",
        help="How long events of agents, and of ended runs, are kept; 0 means forever.")
    keep_archives: timedelta = setting("TIME", retention_period, "0",
        help="Lifetime of a distilled archive of a ref; 0 means it never expires.")
    consolidate_every: timedelta = setting("DURATION", duration, "0",
        help="How often refs that have changed are consolidated; 0 means never.")
    keep_log: timedelta = setting("TIME", retention_period, "0",
        help="How long logs of intents and finished tasks are kept; 0 means forever.")
    max_run_secrets: int = setting(  # bytes
        "SIZE", size, "64MiB",
        help="Maximum memory for the secret values that the runs of a tenant register.")
    backup_dir: Path | None = setting("FOLDER", optional(file),
        help="Folder for automatic backups, on another disk and used by this service only. "
        "Unset: no automatic backups.")
    backup_every: timedelta = setting("DURATION", interval, "24h",
        help="Interval between automatic backups; 0 turns them off.")
    backup_keep: int = setting("NUMBER", between(1, 10_000), "7",
        help="How many backups are kept in the folder.")
    delete_answer: str = setting(  # "empty" or "json"
        "ANSWER", one_of("empty", "json"), "empty",
        help="Response to deleting an observation: empty sends 204 without a body; json sends "
        "200 and the id, for clients that parse every body as JSON.")
    max_upload: int = setting(  # bytes
        "SIZE", size, "256MiB",
        help="The largest body of /import and of a session's end.")
    allowed_origins: frozenset[str] = setting("ORIGINS", origins,
        help="Origins of web pages that may call the service, separated by commas.")
    rate_limit: Rate | None = setting("RATE", rate,
        help="Request rate limit of each key: 50/s, 600/m or 20000/h. Unset: no limit.")
    tools: tuple[str, ...] = setting("NAMES", tool_names, "default",
        help="The tools of agents that come through MCP: default, all, or names with commas.")
    context_limit: int = setting("NUMBER", between(0, 50), "5",
        help="Default number of memories that mem_context returns, 0 to 50; 0 turns mem_context "
        "off.")
    auto_summarize: bool = setting("SWITCH", switch, "on",
        help="Whether mem_session_end accepts the conversation and summarizes it.")
    auto_save: bool = setting("SWITCH", switch, "on",
        help="Whether agents that come through MCP have mem_save.")
    auto_search: bool = setting("SWITCH", switch, "on",
        help="Whether agents that come through MCP have mem_search.")
    log_level: str = setting("LEVEL", one_of("debug", "info", "warning", "error"), "info",
        help="The least severe log lines to write: debug, info, warning or error.")
    log_format: str = setting(  # "", "json" or "text"
        "FORMAT", one_of("", "json", "text"),
        help="How to write log lines: json, or text for people. Unset: text on a terminal, else "
        "json.")
    metrics: str = setting(  # "keys", "open" or "off"
        "MODE", one_of("keys", "open", "off"), "keys",
        help="Who may read /metrics: keys requires a key of the tenant default, once a key "
        "exists; open allows everyone; off allows no one.")
    otlp_endpoint: str | None = setting(
        "ENDPOINT", optional(endpoint), name="OTEL_EXPORTER_OTLP_ENDPOINT",
        help="Where to send traces: host:port (plain-text gRPC) or a URL. Unset: nowhere.")
    otlp_protocol: str = setting(
        "PROTOCOL", one_of("grpc", "http/protobuf"), "grpc",
        name="OTEL_EXPORTER_OTLP_PROTOCOL",
        help="How to send traces: grpc or http/protobuf.")
    # fmt: on

    @property
    def audit_file(self) -> Path:
        return Path(f"{self.db_path}.audit")

    @property
    def retention(self) -> Retentions:
        names = [it.name for it in fields(Retentions)]
        return Retentions(**{name: getattr(self, f"keep_{name}") for name in names})

    @property
    def capacities(self) -> Capacities:
        return Capacities(working=self.working_capacity, episodic=self.episodic_capacity)

    @property
    def profile(self) -> Profile:
        return Profile(**{it.name: getattr(self, it.name) for it in fields(Profile)})


def _variable(of: Field[Any]) -> Variable:
    name = of.metadata["name"] or f"MEMORY_{of.name.upper()}"
    flag = of.metadata["flag"] or f"--{of.name.replace('_', '-')}"
    return Variable(of.name, **{**of.metadata, "name": name, "flag": flag if of.repr else ""})


VARIABLES = tuple(map(_variable, fields(Settings)))


def settings(
    environment: Mapping[str, str] = os.environ, flags: Mapping[str, str | None] | None = None
) -> Settings:
    """Return the settings from flags, then from the environment, then the defaults.

    An empty value counts as unset. Raises SettingRefused for the first invalid value.
    """
    texts = {it.field: (flags or {}).get(it.field) or environment.get(it.name) for it in VARIABLES}
    values = {it.field: _parsed(it, texts[it.field]) for it in VARIABLES}
    for name, ending in FILE_SUFFIXES.items():
        values[name] = values[name] or Path(f"{values['db_path']}{ending}")
    if values["database_url"] and values["backup_dir"]:
        raise SettingRefused(f"MEMORY_BACKUP_DIR: {OF_FILES}")
    alone = [name for name in ("backup_every", "backup_keep") if texts[name]]
    if alone and values["backup_every"] and values["backup_dir"] is None:
        raise SettingRefused(
            f"MEMORY_{alone[0].upper()}: MEMORY_BACKUP_DIR must be set to the folder for backups."
        )
    return Settings(**values)


def _parsed(variable: Variable, text: str | None) -> Any:
    value = text or variable.default
    if not value and variable.field == "db_path":
        value = default_db_path()
    try:
        return variable.parse(value)
    except (ValueError, OSError) as error:  # OSError if the working folder is gone
        quoted = repr(value) if variable.flag else "it"
        raise SettingRefused(f"{variable.name}: {quoted} {error}.") from error


Flags = Mapping[str, str | None]

PREFIX = "MEMORY_"
CLIENT_VARIABLES = ("MEMORY_URL", "MEMORY_API_KEY", "MEMORY_PROJECT")
KNOWN = (*(variable.name for variable in VARIABLES), *CLIENT_VARIABLES)
# Kubernetes sets these variables for a service named memory.
KUBERNETES_VARIABLE = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return variables that look like settings but are not, each with a similar setting."""
    from difflib import get_close_matches  # noqa: PLC0415 - seldom needed

    unknown = sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in KNOWN and not KUBERNETES_VARIABLE.fullmatch(name)
    )
    return {
        name: next(iter(get_close_matches(name, KNOWN, n=1, cutoff=0.75)), None) for name in unknown
    }
