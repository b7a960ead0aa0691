"""The table of settings: each with its variable, its flag, its default and how it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..mcp.profile import context_limit, tools
from ..web.origins import allowed_origins
from ..web.rate_limit import rate
from .parsing import (
    address,
    count,
    duration,
    endpoint,
    features,
    file,
    interval,
    one_of,
    optional_file,
    optional_size,
    retained,
    retention,
    size,
    switch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A setting: its environment variable, its flag, and how it is read."""

    field: str
    name: str
    flag: str
    kind: str
    default: str
    parse: Callable[[str], Any]
    help: str


VARIABLES = (
    Variable(
        field="listen",
        name="MEMORY_LISTEN",
        flag="--listen",
        kind="ADDRESS",
        default="127.0.0.1:7437",
        parse=address,
        help="Where to listen; without a host, on every interface.",
    ),
    Variable(
        field="db_path",
        name="MEMORY_DB_PATH",
        flag="--db",
        kind="FILE",
        default="",
        parse=file,
        help="The database file. Unset, it is /data/memory.db where /data can be written, "
        "else ./data/memory.db.",
    ),
    Variable(
        field="lock_wait",
        name="MEMORY_LOCK_WAIT",
        flag="--lock-wait",
        kind="DURATION",
        default="30s",
        parse=duration,
        help="How long to wait at the start for another service to let go of the database; "
        "0 means not at all.",
    ),
    Variable(
        field="allow_network_fs",
        name="MEMORY_ALLOW_NETWORK_FS",
        flag="--allow-network-fs",
        kind="SWITCH",
        default="off",
        parse=switch,
        help="Whether the database may lie on a network file system. It may be damaged if "
        "another machine opens it.",
    ),
    Variable(
        field="auth",
        name="MEMORY_AUTH",
        flag="--auth",
        kind="MODE",
        default="",
        parse=one_of("", "none", "keys"),
        help="Who is let in while no key was ever made: with none everybody, with keys nobody. "
        "Unset: everybody, but then the service listens on a loopback address alone.",
    ),
    Variable(
        field="keys_file",
        name="MEMORY_KEYS_FILE",
        flag="--keys-file",
        kind="FILE",
        default="",
        parse=optional_file,
        help="The file of the keys. Unset, it is the database's path with .keys at its end.",
    ),
    Variable(
        field="redaction_file",
        name="MEMORY_REDACTION_FILE",
        flag="--redaction-file",
        kind="FILE",
        default="",
        parse=optional_file,
        help="What is not taken for a secret, by tenant. Unset, it is the database's path with "
        ".redaction at its end.",
    ),
    Variable(
        field="tenant_quota",
        name="MEMORY_TENANT_QUOTA",
        flag="--tenant-quota",
        kind="SIZE",
        default="",
        parse=optional_size,
        help="How much the database of a tenant may hold; beyond, saves are refused. "
        "Unset: as much as the disk.",
    ),
    Variable(
        field="dedupe_window",
        name="MEMORY_DEDUPE_WINDOW",
        flag="--dedupe-window",
        kind="DURATION",
        default="15m",
        parse=duration,
        help="How long the same content counts as a duplicate; 0 turns that off.",
    ),
    Variable(
        field="drain",
        name="MEMORY_DRAIN",
        flag="--drain",
        kind="DURATION",
        default="1s",
        parse=duration,
        help="How long requests are still served after SIGTERM, while /health fails.",
    ),
    Variable(
        field="recall_limit",
        name="MEMORY_RECALL_LIMIT",
        flag="--recall-limit",
        kind="DURATION",
        default="2s",
        parse=duration,
        help="How long words may be looked for, before the newest memories stand in.",
    ),
    Variable(
        field="sweep_every",
        name="MEMORY_SWEEP_EVERY",
        flag="--sweep-every",
        kind="DURATION",
        default="10m",
        parse=duration,
        help="How often the service compares its index with the memories; 0 turns that off.",
    ),
    Variable(
        field="session_idle",
        name="MEMORY_SESSION_IDLE",
        flag="--session-idle",
        kind="DURATION",
        default="24h",
        parse=duration,
        help="How long nothing is told of a session before it ends by itself; 0 means never.",
    ),
    Variable(
        field="keep_deleted",
        name="MEMORY_KEEP_DELETED",
        flag="--keep-deleted",
        kind="TIME",
        default="0",
        parse=retention,
        help="How long what is deleted can be restored, such as 90d; 0 means for ever.",
    ),
    Variable(
        field="keep_revisions",
        name="MEMORY_KEEP_REVISIONS",
        flag="--keep-revisions",
        kind="NUMBER",
        default="100",
        parse=retained,
        help="How many of the newest revisions of an observation are kept; 0 means all.",
    ),
    Variable(
        field="keep_idempotency",
        name="MEMORY_KEEP_IDEMPOTENCY",
        flag="--keep-idempotency",
        kind="TIME",
        default="24h",
        parse=retention,
        help="How long a request with an idempotency key is known again; 0 means for ever.",
    ),
    Variable(
        field="keep_audit",
        name="MEMORY_KEEP_AUDIT",
        flag="--keep-audit",
        kind="TIME",
        default="400d",
        parse=retention,
        help="How long lines of the audit file are kept; 0 means for ever.",
    ),
    Variable(
        field="keep_receipts",
        name="MEMORY_KEEP_RECEIPTS",
        flag="--keep-receipts",
        kind="TIME",
        default="0",
        parse=retention,
        help="How long receipts of erasures are kept once the bytes are gone; 0 means for ever.",
    ),
    Variable(
        field="backup_dir",
        name="MEMORY_BACKUP_DIR",
        flag="--backup-dir",
        kind="FOLDER",
        default="",
        parse=optional_file,
        help="The folder that the service makes backups in, on another disk and for it alone. "
        "Unset: it makes none.",
    ),
    Variable(
        field="backup_every",
        name="MEMORY_BACKUP_EVERY",
        flag="--backup-every",
        kind="DURATION",
        default="24h",
        parse=interval,
        help="How old the newest backup may get before the next is made; 0 means never.",
    ),
    Variable(
        field="backup_keep",
        name="MEMORY_BACKUP_KEEP",
        flag="--backup-keep",
        kind="NUMBER",
        default="7",
        parse=count,
        help="How many backups are kept in the folder.",
    ),
    Variable(
        field="recall",
        name="MEMORY_RECALL_WITHOUT",
        flag="--recall-without",
        kind="NAMES",
        default="",
        parse=features,
        help="Techniques of recall to leave out, to measure what they bring. "
        "The index is built anew at the start when it was made by others.",
    ),
    Variable(
        field="max_upload",
        name="MEMORY_MAX_UPLOAD",
        flag="--max-upload",
        kind="SIZE",
        default="256MiB",
        parse=size,
        help="The largest body of /import and of a session's end.",
    ),
    Variable(
        field="allowed_origins",
        name="MEMORY_ALLOWED_ORIGINS",
        flag="--allowed-origins",
        kind="ORIGINS",
        default="",
        parse=allowed_origins,
        help="Origins of web pages that may ask and read, separated by commas.",
    ),
    Variable(
        field="rate_limit",
        name="MEMORY_RATE_LIMIT",
        flag="--rate-limit",
        kind="RATE",
        default="",
        parse=rate,
        help="How often each key may ask: 50/s, 600/m or 20000/h. Unset: no limit.",
    ),
    Variable(
        field="tools",
        name="MEMORY_TOOLS",
        flag="--tools",
        kind="NAMES",
        default="default",
        parse=tools,
        help="The tools of agents that come through MCP: default, all, or names with commas.",
    ),
    Variable(
        field="context_limit",
        name="MEMORY_CONTEXT_LIMIT",
        flag="--context-limit",
        kind="NUMBER",
        default="5",
        parse=context_limit,
        help="How many memories mem_context gives unless it is told, 0 to 50; 0 gives none at all.",
    ),
    Variable(
        field="auto_summarize",
        name="MEMORY_AUTO_SUMMARIZE",
        flag="--auto-summarize",
        kind="SWITCH",
        default="on",
        parse=switch,
        help="Whether mem_session_end takes the conversation, and makes a summary of it.",
    ),
    Variable(
        field="auto_save",
        name="MEMORY_AUTO_SAVE",
        flag="--auto-save",
        kind="SWITCH",
        default="on",
        parse=switch,
        help="Whether agents that come through MCP have mem_save.",
    ),
    Variable(
        field="auto_search",
        name="MEMORY_AUTO_SEARCH",
        flag="--auto-search",
        kind="SWITCH",
        default="on",
        parse=switch,
        help="Whether agents that come through MCP have mem_search.",
    ),
    Variable(
        field="log_level",
        name="MEMORY_LOG_LEVEL",
        flag="--log-level",
        kind="LEVEL",
        default="info",
        parse=one_of("debug", "info", "warning", "error"),
        help="The least severe log lines to write: debug, info, warning or error.",
    ),
    Variable(
        field="metrics",
        name="MEMORY_METRICS",
        flag="--metrics",
        kind="MODE",
        default="keys",
        parse=one_of("keys", "open", "off"),
        help="Who may read /metrics: with keys whoever has a key of the tenant default, and "
        "everybody while no key was ever made; with open everybody; with off nobody.",
    ),
    Variable(
        field="otlp_endpoint",
        name="OTEL_EXPORTER_OTLP_ENDPOINT",
        flag="--otlp-endpoint",
        kind="ENDPOINT",
        default="",
        parse=endpoint,
        help="Where to send traces: host:port (plain-text gRPC) or a URL. Unset: nowhere.",
    ),
    Variable(
        field="otlp_protocol",
        name="OTEL_EXPORTER_OTLP_PROTOCOL",
        flag="--otlp-protocol",
        kind="PROTOCOL",
        default="grpc",
        parse=one_of("grpc", "http/protobuf"),
        help="How to send traces: grpc or http/protobuf.",
    ),
)
