"""What is done by the clock for tenants whose databases are open."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from ...memory.model.access import Caller
from .engine import SqliteEngine
from .maintenance import SqliteMaintenance
from .transaction import Work

P = ParamSpec("P")
T = TypeVar("T")


class Databases(Protocol):
    """The database of each caller's tenant."""

    @property
    def maintenance(self) -> SqliteMaintenance: ...

    def used(
        self, caller: Caller, *, in_passing: bool = False
    ) -> AbstractAsyncContextManager[SqliteEngine]: ...


@dataclass(frozen=True, slots=True)
class InPassing:
    """Transactions that open no database, and keep none open; NotFound for one that is closed."""

    databases: Databases

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self.databases.used(caller, in_passing=True) as engine:
            return await engine.read(caller, work, *args, **kwargs)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self.databases.used(caller, in_passing=True) as engine:
            return await engine.write(caller, work, *args, **kwargs)

    @property
    def maintenance(self) -> SqliteMaintenance:
        return self.databases.maintenance
