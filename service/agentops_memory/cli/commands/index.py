"""`index`: the full-text index of a file, looked at and mended partition by partition."""

import asyncio
from collections.abc import AsyncIterator

import click

from ...compose import utc_now
from ...domain.errors import Refusal
from ...domain.lifecycle.upkeep import Upkeep
from ...domain.model.access import OPERATOR
from ...files.file_systems import require_local
from ...settings.settings import Settings
from ...storage.sqlite import SqliteEngine
from ...storage.sqlite.schema.migrate import require_current

REFUSALS = (Refusal,)


def run(settings: Settings, *, check: bool, rebuild: bool) -> bool:
    """Print a line for each partition; whether all are in line with the memories now.

    Raises one of REFUSALS when there is no such file, when a start would change it,
    or when it is busy for too long. The file itself is never made or brought up to date.
    """
    require_local(settings.db_path, is_network_allowed=settings.allow_network_fs)
    require_current(settings.db_path, settings.recall)
    return asyncio.run(_printed(settings, check=check, rebuild=rebuild))


async def _printed(settings: Settings, *, check: bool, rebuild: bool) -> bool:
    is_good = True
    async with SqliteEngine.opened(
        settings.db_path, clock=utc_now, features=settings.recall
    ) as engine:
        async for line, is_this_good in _looked_at(Upkeep(engine=engine), check, rebuild):
            click.echo(line)
            is_good &= is_this_good
    return is_good


async def _looked_at(upkeep: Upkeep, check: bool, rebuild: bool) -> AsyncIterator[tuple[str, bool]]:
    for partition, drift in (await upkeep.drifts(OPERATOR)).items():
        is_good = not drift and (not check or await upkeep.is_exact(OPERATOR, partition))
        if rebuild and not (check and is_good):
            await upkeep.rebuild(OPERATOR, partition)
            yield f"partition {partition}: built anew", True
        elif is_good:
            yield f"partition {partition}: {'exact' if check else 'in line'}", True
        elif drift:
            yield f"partition {partition}: {drift} rows out of line", False
        else:
            yield f"partition {partition}: its words are not those of the memories", False
