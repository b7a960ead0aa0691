"""What a tenant's schema is made of, and how much it keeps for a time."""

from datetime import datetime
from typing import Any

import psycopg

from ..engine.shared.held import held
from ..memory.model.access import TenantId
from ..memory.model.retention import Retentions, StorageStats
from .base.connection import PostgresConnection
from .base.dialect import POSTGRESQL
from .engine.transaction import stored
from .tenants import use_schema

_WORDS = "SELECT pg_total_relation_size('postings') + pg_total_relation_size('terms')"


def storage_stats(
    connection: psycopg.Connection[Any], tenant: TenantId, retention: Retentions, now: datetime
) -> StorageStats:
    """The sizes of a tenant's tables, on one snapshot of what they hold."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        use_schema(connection, tenant)
        ((words,),) = connection.execute(_WORDS).fetchall()
        ours = PostgresConnection(connection)
        return StorageStats(
            database=stored(ours),
            free=0,
            index=int(words),
            log=0,
            copies=0,
            held=held(ours, POSTGRESQL, retention, now),
        )
