"""Erasing in tests: the receipt once the bytes are gone, and a search of every file for remains."""

from itertools import chain
from pathlib import Path
from typing import Any

import httpx

from .engines import is_postgresql, tables
from .process import until


def erased(http: httpx.Client, memory: object) -> str:
    """The receipt's id of a hard deletion."""
    answer = http.delete(f"/observations/{memory}", params={"hard": "true"})
    assert (answer.status_code, answer.content) == (204, b"")
    return answer.headers["X-Erasure-Id"]


def receipt(http: httpx.Client, erasure: str) -> dict[str, Any]:
    answer = http.get(f"/erasures/{erasure}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def gone(http: httpx.Client, erasure: str) -> dict[str, Any]:
    """The receipt, once it says that the bytes are gone; where nobody can say that, as it is."""
    if is_postgresql():
        return receipt(http, erasure)
    until(lambda: "bytes_gone_at" in receipt(http, erasure))
    return receipt(http, erasure)


def remains(folder: Path, *texts: str) -> set[tuple[str, str]]:
    """Which of the texts are in which files of the folder, whatever their case.

    On PostgreSQL: or in which tables of the databases that stand for files there.
    """
    files = ((file.name, file.read_bytes()) for file in folder.rglob("*") if file.is_file())
    return {
        (name, text)
        for name, stored in chain(files, tables(folder))
        for content in [stored.lower()]
        for text in texts
        if text.lower().encode() in content
    }
