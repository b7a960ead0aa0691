"""Exports and imports in this process tell how far they are, and refuse as the port says."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentops_memory.errors import Denied
from agentops_memory.local import opened_here
from agentops_memory.memory.access import OPERATOR, Caller
from agentops_memory.settings.settings import settings
from agentops_memory.telemetry import Telemetry
from agentops_memory_client.contract.errors import Denied as NotAllowed
from agentops_memory_client.contract.errors import Invalid
from agentops_memory_client.contract.models import Imported
from agentops_memory_client.contract.service import MemoryService as TransferService

from ..support.service import observation


def test_progress_is_told_until_all_is_done(tmp_path: Path) -> None:
    file, told, read = tmp_path / "rows.json", [], bytearray()
    rows = [
        observation(f"Row {number} " * 99, created_at="2029-01-01T00:00:00Z")
        for number in range(99)
    ]
    file.write_text(json.dumps({"observations": rows}), "utf-8")
    size = file.stat().st_size

    def tell(done: int, of: int | None) -> None:
        told.append((done, of))

    async def carry() -> Imported:
        place = settings({"MEMORY_DB_PATH": str(tmp_path / "memory.db")})
        async with opened_here(place, Telemetry.started(None)) as here:
            transfers: TransferService = here
            plan = await transfers.plan_import(file, progress=tell)
            assert (plan.new_observations, told[-1], len(told) > 2) == (99, (size, size), True)
            imported = await transfers.import_from(file, progress=tell)
            assert told[-1] == (size, size)
            assert all(0 < done <= size and of == size for done, of in told)
            told.clear()
            async for piece in transfers.export("demo", progress=tell):
                read.extend(piece)
            with pytest.raises(Invalid):
                await transfers.import_from(_written(tmp_path / "bad.json", "[]"))
            with pytest.raises(OSError, match="not a regular file"):
                await transfers.import_from(Path("/dev/null"))
            return imported

    assert asyncio.run(carry()).imported_observations == 99
    assert told[-1] == (len(read), None)
    assert len(json.loads(read)["observations"]) == 99


def test_an_export_ends_with_the_caller_s_right_to_it(path: Path) -> None:
    rights, read = iter([OPERATOR]), bytearray()

    def caller() -> Caller:
        if (found := next(rights, None)) is None:
            raise Denied("The key was revoked.")
        return found

    async def carry() -> None:
        place = settings({"MEMORY_DB_PATH": str(path)})
        async with opened_here(place, Telemetry.started(None)) as here:
            transfers: TransferService = replace(here, caller=caller)
            async for piece in transfers.export("demo"):
                read.extend(piece)

    with pytest.raises(NotAllowed):
        asyncio.run(carry())
    assert not read


def _written(file: Path, text: str) -> Path:
    file.write_text(text, "utf-8")
    return file
