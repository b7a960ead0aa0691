"""What an operator may write into a setting, which source wins, and that it is documented."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.errors import SettingRefused
from agentops_memory.memory.space import FOR_EVER, Retentions
from agentops_memory.settings import (
    VARIABLES,
    Address,
    Rate,
    Variable,
    address,
    default_db_path,
    duration,
    endpoint,
    origins,
    rate,
    settings,
    size,
)

from ..support.samples import for_each

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


READ: dict[Callable[[str], object], dict[str, object]] = {
    duration: {
        "0": timedelta(), "0s": timedelta(), "15m": timedelta(minutes=15),
        "+15m": timedelta(minutes=15), "1h30m10s": timedelta(hours=1, minutes=30, seconds=10),
        "1.5h": timedelta(minutes=90), ".5s": timedelta(milliseconds=500),
        "1.s": timedelta(seconds=1), "500ms": timedelta(milliseconds=500),
        "250us": timedelta(microseconds=250), "250\u00b5s": timedelta(microseconds=250),
        "250\u03bcs": timedelta(microseconds=250), "2000ns": timedelta(microseconds=2),
        "90s": timedelta(seconds=90), "2540400h": timedelta(hours=2540400),
    },
    address: {
        ":7437": Address(host="", port=7437), ":0": Address(host="", port=0),
        "localhost:80": Address(host="localhost", port=80),
        "memory.svc.cluster.local:65535": Address(host="memory.svc.cluster.local", port=65535),
        "[::1]:7437": Address(host="::1", port=7437), "[::]:7437": Address(host="::", port=7437),
        "[fe80::1%eth0]:7437": Address(host="fe80::1%eth0", port=7437),
        "[::ffff:10.0.0.1]:1": Address(host="::ffff:10.0.0.1", port=1),
    },
    size: {"1": 1, "1048576": 1 << 20, "1KiB": 1 << 10, "256MiB": 256 << 20, "2gib": 2 << 30},
    rate: {
        "": None, "50/s": Rate(count=50, unit="s"), "20000/h": Rate(count=20_000, unit="h"),
        "1/m": Rate(count=1, unit="m"), "1000000/s": Rate(count=1_000_000, unit="s"),
    },
    endpoint: {
        it: it
        for it in ("collector:4317", "collector", "10.0.0.1:4317", "[::1]:4317",
                   "http://collector:4318", "https://collector.example/otlp")
    },
    origins: {
        "": set(), " , ,": set(), " HTTPS://Console.Example , ": {"https://console.example"},
        "https://a.example:443,http://a.example:80": {"https://a.example", "http://a.example"},
        "https://a.example:80": {"https://a.example:80"},
        "http://a.example:443": {"http://a.example:443"},
        "http://localhost:03000": {"http://localhost:3000"},
        "http://[::1]:3000,http://127.0.0.1": {"http://[::1]:3000", "http://127.0.0.1"},
    },
}  # fmt: skip
REFUSED: dict[Callable[[str], object], tuple[str, list[str]]] = {
    duration: ("is not a duration|is longer than", [
        "15", "m", "15 m", " 15m", "15m ", "-15m", "1d", "1h-5m", "1,5h", ".s", "1e3s", "15M",
        "\u0661m", "2600000h", "9" * 400 + "h", "inf", "0x1s", "++1s",
    ]),
    address: ("is not an address", [
        "7437", "localhost", ":", ":x", ":65536", ":-1", "::1:7437", "http://127.0.0.1:7437",
        "127.0.0.1:7437/", "a b:1", "[::1]", "[::1]7437", "[host]:1", "127.0.0.1: 7437", ":\u0661",
    ]),
    size: ("is not a size", ["0", "-1", "1.5MiB", "256M", "256MB", "1 MiB", "MiB", "1" * 30]),
    rate: ("is not a rate such as 50/s, 600/m or 20000/h, from 1 to", [
        "50", "/s", "0/s", "-1/s", "1000001/s", "1.5/s", "50/d", "50/sec", "50 /s", "50/S",
        "1e3/s", "50/s ", "\u0661/s", "9" * 5000 + "/s", "unlimited",
    ]),
    endpoint: ("is not an endpoint", [
        ":4317", "http://", "ftp://collector", "collector:port", "collector:99999", "[::1:4317",
    ]),
    origins: ("contains something other than an origin such as https://", [
        "*", "null", "console.example", "https://", "https://console.example/",
        "https://*.example", "https://user@console.example", "https://console.example?q",
        "ftp://console.example", "https://console.example:65536", "https://console.example:x",
        "https://console.example:", "https://caf\xe9.example", "https://console.example,*",
        "https://a.example https://b.example", "https://::1", "//console.example",
    ]),
}  # fmt: skip


@for_each("parse", READ)
def test_a_value_is_read_or_refused(parse: Callable[[str], object]) -> None:
    for text, value in READ[parse].items():
        assert parse(text) == value
        if isinstance(value, Address | Rate):
            assert str(value) == text
    sentence, wrong = REFUSED[parse]
    for text in wrong:
        with pytest.raises(ValueError, match=sentence):
            parse(text)


@for_each(
    "name, wrong, sentence",
    [
        ("MEMORY_LISTEN", "7437", "is not an address"),
        ("MEMORY_DEDUPE_WINDOW", "15", "is not a duration"),
        ("MEMORY_DB_PATH", "/", "is the root of the file system"),
        ("MEMORY_DELETE_ANSWER", "yaml", "is not one of empty, json"),
        ("MEMORY_MAX_UPLOAD", "big", "is not a size"),
        ("MEMORY_RECALL_LIMIT", "fast", "is not a duration"),
        ("MEMORY_SWEEP_EVERY", "1d", "is not a duration"),
        ("MEMORY_KEEP_AUDIT", "1 year", "is not a duration such as 400d"),
        ("MEMORY_KEEP_AUDIT", "-1d", "is not a duration such as 400d"),
        ("MEMORY_KEEP_AUDIT", "200000d", "is longer than 292 years"),
        ("MEMORY_KEEP_REVISIONS", "100d", "is not a number from 0 to 999999999"),
        ("MEMORY_KEEP_REVISIONS", "-1", "is not a number from 0 to 999999999"),
        ("MEMORY_BACKUP_EVERY", "59s", "is less than a minute"),
        ("MEMORY_BACKUP_KEEP", "0", "is not a number from 1 to 10000"),
        ("MEMORY_BACKUP_KEEP", "10001", "is not a number from 1 to 10000"),
        ("MEMORY_ALLOWED_ORIGINS", "console.example", "contains something other than an origin"),
        ("MEMORY_RATE_LIMIT", "often", "is not a rate"),
        ("MEMORY_CONTEXT_LIMIT", "51", "is not a number from 0 to 50"),
        ("MEMORY_CONTEXT_LIMIT", "\u0665", "is not a number from 0 to 50"),
        ("MEMORY_LOG_LEVEL", "loud", "is not one of debug, info, warning, error"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "is not an endpoint"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "smtp", "is not one of grpc, http/protobuf"),
    ],
)
def test_a_refusal_names_the_variable_and_its_value(name: str, wrong: str, sentence: str) -> None:
    with pytest.raises(SettingRefused, match=f"^{name}: '{wrong}' {sentence}.*[.]$"):
        settings({name: wrong})


def test_with_nothing_set_every_default_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    values = asdict(settings({}))
    database = tmp_path / default_db_path()  # which differs where /data can be written

    assert values == {
        "listen": {"host": "127.0.0.1", "port": 7437}, "db_path": database, "database_url": None,
        "database_pool": 8, "database_retention": None, "lock_wait": timedelta(seconds=30),
        "allow_network_fs": False, "auth": "", "keys_file": Path(f"{database}.keys"),
        "redaction_file": Path(f"{database}.redaction"), "seal_file": Path(f"{database}.seal"),
        "tenant_quota": None, "dedupe_window": timedelta(minutes=15), "drain": timedelta(seconds=1),
        "recall_limit": timedelta(seconds=2), "index_cache": 64 << 20,
        "sweep_every": timedelta(minutes=10), "review_after": {}, "session_idle": timedelta(days=1),
        "keep_deleted": timedelta(), "keep_expired": timedelta(days=30), "keep_revisions": 100,
        "keep_idempotency": timedelta(hours=24), "keep_audit": timedelta(days=400),
        "keep_receipts": timedelta(), "keep_events": timedelta(days=30),
        "keep_archives": timedelta(), "consolidate_every": timedelta(), "keep_log": timedelta(),
        "max_run_secrets": 64 << 20, "episodic_capacity": 1000, "working_capacity": 1000,
        "backup_dir": None, "backup_every": timedelta(days=1), "backup_keep": 7,
        "delete_answer": "empty", "max_upload": 256 << 20, "allowed_origins": frozenset(),
        "rate_limit": None, "tools": ("mem_save", "mem_search", "mem_context"), "context_limit": 5,
        "auto_summarize": True, "auto_save": True, "auto_search": True, "log_level": "info",
        "log_format": "", "metrics": "keys", "otlp_endpoint": None, "otlp_protocol": "grpc",
    }  # fmt: skip


def test_values_are_read_as_people_write_them_and_a_flag_beats_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = settings({"MEMORY_KEEP_DELETED": "1d12h", "MEMORY_KEEP_AUDIT": "0"}).retention
    assert settings({}).retention == Retentions()
    assert retention == Retentions(deleted=timedelta(hours=36), audit=FOR_EVER)
    assert settings({"MEMORY_LOG_LEVEL": "WARNING"}).log_level == "warning"
    monkeypatch.chdir(tmp_path)
    for text in (":memory:", "file:memory.db?mode=memory", "memory.db"):  # always a file
        assert settings({"MEMORY_DB_PATH": text}).db_path == tmp_path / text

    environment = {"MEMORY_DEDUPE_WINDOW": "1h"}
    assert settings({}).dedupe_window == timedelta(minutes=15)
    assert settings(environment).dedupe_window == timedelta(hours=1)
    assert settings(environment, {"dedupe_window": "2h"}).dedupe_window == timedelta(hours=2)


@for_each("variable", VARIABLES)
def test_an_empty_variable_and_an_empty_flag_are_unset_ones(variable: Variable) -> None:
    assert settings({variable.name: ""}, {variable.field: ""}) == settings({})


def test_the_mounted_folder_holds_the_data_if_it_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert default_db_path(tmp_path) == f"{tmp_path}/memory.db"
    assert default_db_path(tmp_path / "file") == "./data/memory.db"
    assert default_db_path(tmp_path / "missing") == "./data/memory.db"


@for_each("variable", VARIABLES)
def test_every_variable_is_documented_with_its_flag_its_default_and_usable_examples(
    variable: Variable,
) -> None:
    lines = DOCUMENT.read_text("utf-8").splitlines()

    (row,) = (line for line in lines if line.startswith(f"| `{variable.name}` |"))

    _, _, flag, default, meaning, examples, _ = (cell.strip() for cell in row.split("|"))
    assert flag == f"`{variable.flag}`" or (not variable.flag and flag.startswith("none"))
    assert variable.default in default
    assert default
    assert meaning
    assert examples
    folder = "" if variable.name == "MEMORY_DATABASE_URL" else "/backup"
    for example in examples.split():
        settings({"MEMORY_BACKUP_DIR": folder, variable.name: example.strip("`")})
