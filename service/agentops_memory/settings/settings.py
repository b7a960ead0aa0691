"""One frozen Settings, one table of variables, read once."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..domain.errors import SettingRefused
from ..domain.model.retention import Retentions
from ..domain.text.features import Features
from ..mcp.profile import Profile
from ..web.rate_limit import Rate
from .parsing import Address
from .variables import VARIABLES, Variable

__all__ = ["VARIABLES", "Address", "Settings", "Variable", "settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an operator decides. `variables` names each part's source."""

    listen: Address
    db_path: Path
    lock_wait: timedelta
    allow_network_fs: bool
    auth: str  # "", "none" or "keys"
    keys_file: Path
    redaction_file: Path
    tenant_quota: int | None  # bytes
    dedupe_window: timedelta
    drain: timedelta
    sweep_every: timedelta
    session_idle: timedelta
    keep_deleted: timedelta
    keep_revisions: int
    keep_idempotency: timedelta
    keep_audit: timedelta
    keep_receipts: timedelta
    backup_dir: Path | None
    backup_every: timedelta
    backup_keep: int
    recall: Features
    recall_limit: timedelta
    max_upload: int  # bytes
    allowed_origins: frozenset[str]
    rate_limit: Rate | None
    tools: tuple[str, ...]
    context_limit: int
    auto_summarize: bool
    auto_save: bool
    auto_search: bool
    log_level: str
    metrics: str  # "keys", "open" or "off"
    otlp_endpoint: str | None
    otlp_protocol: str

    @property
    def audit_file(self) -> Path:
        """Where changes of keys, tenants and projects are noted."""
        return Path(f"{self.db_path}.audit")

    @property
    def kept(self) -> Retentions:
        """What is kept, and for how long."""
        return Retentions(
            deleted=self.keep_deleted,
            revisions=self.keep_revisions,
            idempotency=self.keep_idempotency,
            audit=self.keep_audit,
            receipts=self.keep_receipts,
        )

    @property
    def profile(self) -> Profile:
        """What agents are offered through MCP."""
        return Profile(
            tools=self.tools,
            context_limit=self.context_limit,
            auto_summarize=self.auto_summarize,
            auto_save=self.auto_save,
            auto_search=self.auto_search,
        )


def settings(
    environment: Mapping[str, str] = os.environ, flags: Mapping[str, str | None] | None = None
) -> Settings:
    """The settings of flags, then of the environment, then the defaults.

    An empty value is an unset one. Raises SettingRefused for the first wrong value.
    """
    given = flags or {}
    values = {
        variable.field: _read(variable, _given(variable, environment, given))
        for variable in VARIABLES
    }
    for name, ending in _BESIDE.items():
        values[name] = values[name] or Path(f"{values['db_path']}{ending}")
    _require_folder(values, {it.name for it in VARIABLES if _given(it, environment, given)})
    assert values.keys() == {field.name for field in fields(Settings)}
    return Settings(**values)


def default_db_path(mounted: Path = Path("/data")) -> str:
    """`/data/memory.db` where that folder can be written, else one below this folder."""
    usable = mounted.is_dir() and os.access(mounted, os.W_OK)
    return str(mounted / "memory.db") if usable else "./data/memory.db"


def _given(
    variable: Variable, environment: Mapping[str, str], flags: Mapping[str, str | None]
) -> str | None:
    return flags.get(variable.field) or environment.get(variable.name)


def _require_folder(values: Mapping[str, Any], named: set[str]) -> None:
    """Whoever says how often backups are made believes that some are."""
    lonely = sorted(named & {"MEMORY_BACKUP_EVERY", "MEMORY_BACKUP_KEEP"})
    if lonely and values["backup_every"] and values["backup_dir"] is None:
        raise SettingRefused(f"{lonely[0]}: MEMORY_BACKUP_DIR must say where backups are to lie.")


def _read(variable: Variable, text: str | None) -> Any:
    value = text or variable.default or _DEFAULTS.get(variable.field, str)()
    try:
        return variable.parse(value)
    except (ValueError, OSError) as error:  # the latter for a working folder that is gone
        raise SettingRefused(f"{variable.name}: {value!r} {error}.") from error


_DEFAULTS: dict[str, Callable[[], str]] = {"db_path": default_db_path}
_BESIDE = {
    "keys_file": ".keys",
    "redaction_file": ".redaction",
}  # files that lie beside the database
