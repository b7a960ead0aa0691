"""One frozen Settings, one table of variables, read once."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .domain.techniques import ALL, Technique, Techniques

LONGEST = timedelta(days=292 * 365)  # as in Go; a window reaches back from now


class SettingRefused(Exception):
    """A setting that cannot be used; its text is a sentence for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; an empty host means every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an operator decides. `variables` names each part's source."""

    listen: Address
    db_path: Path
    dedupe_window: timedelta
    drain: timedelta
    sweep_every: timedelta
    recall: Techniques
    recall_limit: timedelta
    max_upload: int  # bytes
    log_level: str
    otlp_endpoint: str | None
    otlp_protocol: str


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


def settings(
    environment: Mapping[str, str] = os.environ, flags: Mapping[str, str | None] | None = None
) -> Settings:
    """The settings of flags, then of the environment, then the defaults.

    An empty value is an unset one. Raises SettingRefused for the first wrong value.
    """
    given = flags or {}
    values = {
        variable.field: _read(variable, given.get(variable.field) or environment.get(variable.name))
        for variable in VARIABLES
    }
    assert values.keys() == {field.name for field in fields(Settings)}
    return Settings(**values)


def duration(text: str) -> timedelta:
    """A Go-style duration that is not negative: `15m`, `1h30m`, `500ms`, `0`."""
    if not _DURATION.fullmatch(text):
        raise ValueError("is no duration such as 15m, 1h30m, 90s or 0")
    seconds = sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    if seconds > LONGEST.total_seconds():
        raise ValueError("is longer than 292 years")
    return timedelta(seconds=seconds)


def address(text: str) -> Address:
    """An address to listen on: `:7437`, `127.0.0.1:7437`, `[::1]:7437`."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("is no address such as :7437, 127.0.0.1:7437 or [::1]:7437")
    return Address(host=match["v6"] or match["host"] or "", port=int(match["port"]))


def file(text: str) -> Path:
    """An absolute path: nothing that SQLite would take for anything but a file's name."""
    return Path(text).absolute()


def endpoint(text: str) -> str | None:
    """Where spans go: `collector:4317` or a URL; None for nowhere."""
    if not text:
        return None
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        is_usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ValueError("is no endpoint such as collector:4317 or http://collector:4318")
    return text


def size(text: str) -> int:
    """A number of bytes: `1048576`, `256MiB`, `1GiB`."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("is no size such as 1048576, 256MiB or 1GiB")
    return int(match["count"]) * _SIZES[(match["unit"] or "").lower()]


def techniques(text: str) -> Techniques:
    """All techniques of recall but those named: `typos,context`."""
    try:
        return ALL - {Technique(name.strip()) for name in text.split(",") if name.strip()}
    except ValueError as error:
        raise ValueError(f"names something that is none of {', '.join(Technique)}") from error


def default_db_path(mounted: Path = Path("/data")) -> str:
    """`/data/memory.db` where that folder can be written, else one below this folder."""
    usable = mounted.is_dir() and os.access(mounted, os.W_OK)
    return str(mounted / "memory.db") if usable else "./data/memory.db"


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"is none of {', '.join(choices)}")
        return text.lower()

    return parse


def _read(variable: Variable, text: str | None) -> Any:
    value = text or variable.default or _DEFAULTS.get(variable.field, str)()
    try:
        return variable.parse(value)
    except (ValueError, OSError) as error:  # the latter for a working folder that is gone
        raise SettingRefused(f"{variable.name}: {value!r} {error}.") from error


_DEFAULTS: dict[str, Callable[[], str]] = {"db_path": default_db_path}

_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3}
_UNITS |= {"s": 1, "m": 60, "h": 3600}
_PART = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_UNITS)})", re.ASCII)
_DURATION = re.compile(rf"\+?(?:0|(?:{_PART.pattern})+)", re.ASCII)
_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^:\s/\[\]]*)):(?P<port>\d{1,5})",
    re.ASCII,
)
_SIZE = re.compile(r"(?P<count>[1-9]\d{0,17})(?P<unit>KiB|MiB|GiB)?", re.ASCII | re.IGNORECASE)
_SIZES = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

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
        field="recall",
        name="MEMORY_RECALL_WITHOUT",
        flag="--recall-without",
        kind="NAMES",
        default="",
        parse=techniques,
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
        field="log_level",
        name="MEMORY_LOG_LEVEL",
        flag="--log-level",
        kind="LEVEL",
        default="info",
        parse=_one_of("debug", "info", "warning", "error"),
        help="The least severe log lines to write: debug, info, warning or error.",
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
        parse=_one_of("grpc", "http/protobuf"),
        help="How to send traces: grpc or http/protobuf.",
    ),
)
