"""The tenants that a process knows, and the schema of each."""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import errors

from ...errors import NotFound, StartRefused, Unavailable
from ...memory.model.access import TenantId
from ..schema.migrate import brought_up_to_date, schema_of, tenants

HasKey = Callable[[TenantId], bool]


class Schemas:
    """What other processes make and erase is learned now and again. Any thread may use it."""

    def __init__(self, has_key: HasKey) -> None:
        self._has_key = has_key
        self._known: dict[TenantId, str] = {}

    def know(self, tenants: list[TenantId]) -> None:
        """There are these tenants, each with a schema, and no others."""
        self._known = {tenant: schema_of(tenant) for tenant in tenants}

    @property
    def tenants(self) -> list[TenantId]:
        return list(self._known)

    def of(self, connection: psycopg.Connection[Any], tenant: TenantId) -> str:
        """The tenant's schema, made when it is first used, if a key opens it."""
        if schema := self._known.get(tenant):
            return schema
        if not self._has_key(tenant):
            raise NotFound("There is no such tenant.")
        try:
            schema = brought_up_to_date(connection, tenant)
        except StartRefused as refusal:  # of a schema that a newer release has made
            raise Unavailable(str(refusal)) from None
        self._known[tenant] = schema
        return schema

    def forget_erased(
        self, connection: psycopg.Connection[Any], tenant: TenantId, error: psycopg.Error
    ) -> bool:
        """Forget a tenant if an error comes from its having been erased; whether it does."""
        if not isinstance(error, errors.UndefinedTable) or tenant in tenants(connection):
            return False
        self._known.pop(tenant, None)
        return True
