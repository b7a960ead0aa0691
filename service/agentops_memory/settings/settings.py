"""One frozen Settings, in which each setting stands once: its field, variable, flag and parser."""

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import SettingRefused
from ..light import Field, dataclass, field, fields
from ..memory.retention import LARGEST_CAPACITY, Capacities, Retentions
from ..recall.features import Features
from . import parsing
from .parsing import Address, Profile, Rate


class Variable(NamedTuple):
    """Where a setting comes from: its environment variable, its flag, and how it is read."""

    field: str
    name: str
    flag: str  # empty for a secret: everybody sees the arguments of a process
    kind: str
    default: str
    parse: Callable[[str], Any]
    help: str


def setting(
    kind: str,
    parse: Callable[[str], Any],
    default: str = "",
    *,
    help: str,  # noqa: A002 - as click calls it
    name: str = "",
    flag: str = "",
    is_secret: bool = False,
) -> Any:
    """A field with its Variable; MEMORY_ITS_NAME and --its-name by default."""
    row = {"name": name, "flag": flag, "kind": kind, "default": default, "parse": parse}
    return field(repr=not is_secret, metadata=row | {"help": help})


OF_FILES = (
    "this setting is for files; PostgreSQL has its own backups: pg_dump, or base backups with "
    "point-in-time recovery."
)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an operator decides: a row is kind, parser and default."""

    # The URL of the database is a secret, and has no flag.
    database_url: str | None = setting("URL", parsing.database_url, is_secret=True,
        help="URL of a PostgreSQL database to use instead of the file.")
    database_pool: int = setting("NUMBER", parsing.between(1, 1000), "8",
        help="Maximum number of PostgreSQL connections that a process uses for requests.")
    database_retention: timedelta | None = setting("TIME", parsing.optional(parsing.retention),
        help="How long the write-ahead log and the backups of PostgreSQL are kept, so that "
        "receipts of erasures can say when the bytes are gone. Unset: they never say so.")
    listen: Address = setting("ADDRESS", parsing.address, "127.0.0.1:7437",
        help="Address to listen on; without a host, all interfaces.")
    db_path: Path = setting("FILE", parsing.file, flag="--db",
        help="The database file. Unset, it is /data/memory.db where /data can be written, else "
        "./data/memory.db.")
    lock_wait: timedelta = setting("DURATION", parsing.duration, "30s",
        help="How long a starting service waits for another one that has the database open; 0 "
        "means not at all.")
    allow_network_fs: bool = setting("SWITCH", parsing.switch, "off",
        help="Allow the database on a network file system, where it may be damaged if another "
        "machine opens it.")
    auth: str = setting(  # "", "none" or "keys"
        "MODE", parsing.one_of("", "none", "keys"),
        help="Who has access before the first key is created: everyone (none) or no one (keys). "
        "Unset: everyone, but the service then listens only on a loopback address.")
    keys_file: Path = setting("FILE", parsing.optional_file,
        help="The file of the keys. Unset: the database's path plus .keys.")
    redaction_file: Path = setting("FILE", parsing.optional_file,
        help="The file of exceptions to redaction, by tenant. Unset: the database's path plus "
        ".redaction.")
    seal_file: Path = setting("FILE", parsing.optional_file,
        help="The keys that encrypt confidential values of agents' memory. Unset, it is the "
        "database's path with .seal at its end, made with the first such value.")
    tenant_quota: int | None = setting(  # bytes
        "SIZE", parsing.optional(parsing.size),
        help="Maximum size of a tenant's database; beyond it saves are refused. Unset: limited "
        "only by the disk.")
    dedupe_window: timedelta = setting("DURATION", parsing.duration, "15m",
        help="How long a save of the same content counts as a duplicate; 0 turns this off.")
    drain: timedelta = setting("DURATION", parsing.duration, "1s",
        help="How long requests are still served after SIGTERM, while /health fails.")
    recall_limit: timedelta = setting("DURATION", parsing.duration, "2s",
        help="Timeout of a search by words; after it, a context returns the newest memories "
        "instead.")
    index_cache: int = setting(  # bytes
        "SIZE", parsing.size_or_none, "64MiB",
        help="Size of the in-memory cache of the full-text index; 0 turns it off.")
    episodic_capacity: int = setting("NUMBER", parsing.between(1, LARGEST_CAPACITY), "1000",
        help="Maximum number of episodic entries of an agent; the next one evicts an older one.")
    working_capacity: int = setting("NUMBER", parsing.between(1, 10_000), "1000",
        help="Maximum number of working entries of an agent; the next one is refused.")
    sweep_every: timedelta = setting("DURATION", parsing.duration, "10m",
        help="How often the service checks its index against the memories; 0 turns this off.")
    review_after: Mapping[str, timedelta] = setting("PERIODS", parsing.periods,
        help="Review period for each type of memory, such as config=90d, separated by commas. "
        "Unset: only memories with a review date are due.")
    session_idle: timedelta = setting("DURATION", parsing.duration, "24h",
        help="Idle time after which a session ends, and the secrets of a run are forgotten; 0 "
        "means never.")
    keep_deleted: timedelta = setting("TIME", parsing.retention, "0",
        help="How long deleted data can be restored, such as 90d; 0 means forever.")
    keep_expired: timedelta = setting("TIME", parsing.retention, "30d",
        help="How long an observation is kept after it expires; 0 means forever.")
    keep_revisions: int = setting("NUMBER", parsing.retained, "100",
        help="How many of the newest revisions of an observation are kept; 0 means all.")
    keep_idempotency: timedelta = setting("TIME", parsing.retention, "24h",
        help="How long an idempotency key is remembered; 0 means forever.")
    keep_audit: timedelta = setting("TIME", parsing.retention, "400d",
        help="How long lines of the audit file are kept; 0 means forever.")
    keep_receipts: timedelta = setting("TIME", parsing.retention, "0",
        help="How long receipts of erasures are kept once the bytes are gone; 0 means forever.")
    keep_events: timedelta = setting("TIME", parsing.retention, "30d",
        help="How long events of agents, and of ended runs, are kept; 0 means forever.")
    keep_archives: timedelta = setting("TIME", parsing.retention, "0",
        help="Lifetime of a distilled archive of a ref; 0 means it never expires.")
    consolidate_every: timedelta = setting("DURATION", parsing.duration, "0",
        help="How often refs that have changed are consolidated; 0 means never.")
    keep_log: timedelta = setting("TIME", parsing.retention, "0",
        help="How long logs of intents and finished tasks are kept; 0 means forever.")
    max_run_secrets: int = setting(  # bytes
        "SIZE", parsing.size, "64MiB",
        help="Maximum memory for the secret values that the runs of a tenant register.")
    backup_dir: Path | None = setting("FOLDER", parsing.optional_file,
        help="Folder for automatic backups, on another disk and used by this service only. "
        "Unset: no automatic backups.")
    backup_every: timedelta = setting("DURATION", parsing.interval, "24h",
        help="Interval between automatic backups; 0 turns them off.")
    backup_keep: int = setting("NUMBER", parsing.between(1, 10_000), "7",
        help="How many backups are kept in the folder.")
    recall: Features = setting(
        "NAMES", parsing.features, name="MEMORY_RECALL_WITHOUT", flag="--recall-without",
        help="Recall techniques to turn off, to measure their effect. If the choice changes, "
        "the index is rebuilt at the start.")
    delete_answer: str = setting(  # "empty" or "json"
        "ANSWER", parsing.one_of("empty", "json"), "empty",
        help="Response to deleting an observation: empty sends 204 without a body; json sends "
        "200 and the id, for clients that parse every body as JSON.")
    max_upload: int = setting(  # bytes
        "SIZE", parsing.size, "256MiB",
        help="The largest body of /import and of a session's end.")
    allowed_origins: frozenset[str] = setting("ORIGINS", parsing.allowed_origins,
        help="Origins of web pages that may call the service, separated by commas.")
    rate_limit: Rate | None = setting("RATE", parsing.rate,
        help="Request rate limit of each key: 50/s, 600/m or 20000/h. Unset: no limit.")
    tools: tuple[str, ...] = setting("NAMES", parsing.tools, "default",
        help="The tools of agents that come through MCP: default, all, or names with commas.")
    context_limit: int = setting("NUMBER", parsing.between(0, 50), "5",
        help="Default number of memories that mem_context returns, 0 to 50; 0 turns mem_context "
        "off.")
    auto_summarize: bool = setting("SWITCH", parsing.switch, "on",
        help="Whether mem_session_end accepts the conversation and summarizes it.")
    auto_save: bool = setting("SWITCH", parsing.switch, "on",
        help="Whether agents that come through MCP have mem_save.")
    auto_search: bool = setting("SWITCH", parsing.switch, "on",
        help="Whether agents that come through MCP have mem_search.")
    log_level: str = setting("LEVEL", parsing.one_of("debug", "info", "warning", "error"), "info",
        help="The least severe log lines to write: debug, info, warning or error.")
    log_format: str = setting(  # "", "json" or "text"
        "FORMAT", parsing.one_of("", "json", "text"),
        help="How to write log lines: json, or text for people. Unset: text on a terminal, else "
        "json.")
    metrics: str = setting(  # "keys", "open" or "off"
        "MODE", parsing.one_of("keys", "open", "off"), "keys",
        help="Who may read /metrics: keys requires a key of the tenant default, once a key "
        "exists; open allows everyone; off allows no one.")
    otlp_endpoint: str | None = setting(
        "ENDPOINT", parsing.optional(parsing.endpoint), name="OTEL_EXPORTER_OTLP_ENDPOINT",
        help="Where to send traces: host:port (plain-text gRPC) or a URL. Unset: nowhere.")
    otlp_protocol: str = setting(
        "PROTOCOL", parsing.one_of("grpc", "http/protobuf"), "grpc",
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
    """The settings of flags, then of the environment, then the defaults.

    An empty value is an unset one. Raises SettingRefused for the first wrong value.
    """
    texts = {it.field: (flags or {}).get(it.field) or environment.get(it.name) for it in VARIABLES}
    values = {it.field: _parsed(it, texts[it.field]) for it in VARIABLES}
    for name, ending in BESIDE_DATABASE.items():
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
        value = parsing.default_db_path()
    try:
        return variable.parse(value)
    except (ValueError, OSError) as error:  # the latter for a working folder that is gone
        quoted = repr(value) if variable.flag else "it"
        raise SettingRefused(f"{variable.name}: {quoted} {error}.") from error


Flags = Mapping[str, str | None]

OURS = "MEMORY_"
OF_CLIENTS = ("MEMORY_URL", "MEMORY_API_KEY", "MEMORY_PROJECT")
BY_NAME = {variable.name: variable for variable in VARIABLES}
KNOWN = (*BY_NAME, *OF_CLIENTS)
# Kubernetes tells of a service that is called memory by variables of its own.
OF_A_CLUSTER = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableSettings:
    """The settings, with a default in place of each that cannot be used, and those refusals."""

    settings: Settings
    refusals: tuple[str, ...]


def settings_or_defaults(environment: Mapping[str, str], flags: Flags) -> UsableSettings:
    """The settings that can be used. A file that cannot be named is SettingRefused."""
    refusals: list[str] = []
    left, options = dict(environment), dict(flags)
    while True:
        try:
            return UsableSettings(settings=settings(left, options), refusals=tuple(refusals))
        except SettingRefused as refusal:
            wrong = BY_NAME.get(str(refusal).partition(":")[0])
            if wrong is None or not (left.pop(wrong.name, None) or options.get(wrong.field)):
                raise
            options[wrong.field] = None
            refusals.append(str(refusal))


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that look like settings and are none, each with the one it resembles."""
    from difflib import get_close_matches  # noqa: PLC0415 - seldom needed

    unknown = sorted(
        name
        for name in environment
        if name.startswith(OURS) and name not in KNOWN and not OF_A_CLUSTER.fullmatch(name)
    )
    return {
        name: next(iter(get_close_matches(name, KNOWN, n=1, cutoff=0.75)), None) for name in unknown
    }


BESIDE_DATABASE = {"keys_file": ".keys", "redaction_file": ".redaction", "seal_file": ".seal"}
