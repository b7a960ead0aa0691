"""`index`: the full-text index of a file, looked at and mended partition by partition."""

import asyncio
import sys
from collections.abc import AsyncIterator

import click

from ...domain.model.access import OPERATOR
from ...files.file_systems import require_local
from ...settings.settings import Settings, settings
from ...storage.sqlite import SqliteEngine
from ...storage.sqlite.engine.maintenance import SqliteMaintenance
from ...storage.sqlite.schema.migrate import require_current
from ..options import setting_options
from ..service_files import now


@click.command()
@setting_options()
@click.option("--check", is_flag=True, help="Compare every word, not only the number of rows.")
@click.option(
    "--rebuild", is_flag=True, help="Build anew: all, or with --check what is found to be wrong."
)
def index(check: bool, rebuild: bool, **flags: str | None) -> None:
    """Look at each partition of the full-text index, while others use the file.

    Exits with 1 if one is out of line with the memories and stays so.
    """
    chosen = settings(flags=flags)
    require_local(chosen.db_path, is_network_allowed=chosen.allow_network_fs)
    require_current(chosen.db_path, chosen.recall)
    sys.exit(0 if asyncio.run(_is_good(chosen, check=check, rebuild=rebuild)) else 1)


async def _is_good(settings: Settings, *, check: bool, rebuild: bool) -> bool:
    """Print a line for each partition; whether all are in line with the memories now."""
    is_good = True
    async with SqliteEngine.opened(settings.db_path, clock=now, features=settings.recall) as engine:
        async for line, is_this_good in _checked(engine.maintenance, check, rebuild):
            click.echo(line)
            is_good &= is_this_good
    return is_good


async def _checked(
    maintenance: SqliteMaintenance, check: bool, rebuild: bool
) -> AsyncIterator[tuple[str, bool]]:
    for partition, drift in (await maintenance.drifts(OPERATOR)).items():
        is_good = not drift and (not check or await maintenance.is_exact(OPERATOR, partition))
        if rebuild and not (check and is_good):
            await maintenance.rebuild(OPERATOR, partition)
            yield f"partition {partition}: built anew", True
        elif is_good:
            yield f"partition {partition}: {'exact' if check else 'in line'}", True
        elif drift:
            yield f"partition {partition}: {drift} rows out of line", False
        else:
            yield f"partition {partition}: its words are not those of the memories", False
