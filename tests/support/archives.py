"""Archives in tests: made and put back at the terminal, spoiled, and compared row by row."""

import json
import zipfile
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentops_memory.operations.backup import COMMENT
from agentops_memory.sqlite.connection import connect

from .engines import storage_at
from .terminal import Terminal

Rows = dict[str, list[tuple[Any, ...]]]


def at(path: Path) -> Terminal:
    """A terminal for the database at the path."""
    return Terminal(storage_at(path))


def backed_up(path: Path, to: Path, *options: str) -> Path:
    """The archive that the command makes."""
    return Path(at(path).json("backup", "--to", to, *options)["archive"])


def all_rows(path: Path) -> Rows:
    """Every row of every table, those of the index too."""
    with closing(connect(path)) as database:
        tables = database.execute(
            """SELECT name
                 FROM pragma_table_list
                WHERE schema = 'main' AND type IN ('table', 'shadow') AND name <> 'sqlite_schema'"""
        ).fetchall()
        found = {
            name: sorted(database.execute(f'SELECT * FROM "{name}"'), key=repr)
            for (name,) in tables
        }
    assert "memories" in found
    return found


def repacked(
    archive: Path, to: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None],
    **options: Any,
) -> Path:  # fmt: skip
    """A copy of the archive with other members and another manifest, signed as ours are."""
    with zipfile.ZipFile(archive) as source:
        members = {name: source.read(name) for name in source.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(members, manifest)
    data = json.dumps(manifest).encode()
    with zipfile.ZipFile(to, "w", options.get("packed", zipfile.ZIP_DEFLATED)) as target:
        for name, content in members.items():
            target.writestr(name, content)
        target.writestr("manifest.json", data)
        target.comment = COMMENT + sha256(data).hexdigest().encode()
    return to


def told_truly(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
    """Let the manifest have the sizes and digests that its members have."""
    for of in (*manifest["tenants"], *manifest["members"]):
        if of["member"] in members:
            of["bytes"] = len(members[of["member"]])
            of["sha256"] = sha256(members[of["member"]]).hexdigest()
