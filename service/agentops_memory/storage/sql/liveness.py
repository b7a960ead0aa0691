"""The SQL of liveness: which memories there are at the instant of a transaction, `:now`.

Each is a condition on a memory under an alias, or under the name of its table; `expired` and
`superseded` ask for its id alone, which may be all that is known of a row.
"""

# Comes first in each: it is what the partial indexes of memories say.
_UNDELETED = "{0}.deleted_at IS NULL"


def undeleted(alias: str) -> str:
    """Live or expired."""
    return _UNDELETED.format(alias)


def live(alias: str) -> str:
    """Neither deleted nor expired."""
    return f"{undeleted(alias)} AND NOT {expired(alias + '.id')}"


def expired(id_: str) -> str:
    """At or past its end."""
    return f"""EXISTS (SELECT 1
                         FROM lifecycles
                        WHERE lifecycles.memory_id = {id_}
                              AND lifecycles.expires_at <= :now)"""


def indexed(alias: str) -> str:
    """In the full-text index: not deleted, and not taken out by the sweep of expired ones."""
    return f"""{undeleted(alias)}
               AND NOT EXISTS (SELECT 1
                                 FROM lifecycles
                                WHERE lifecycles.memory_id = {alias}.id
                                      AND lifecycles.is_swept)"""


def superseded(id_: str) -> str:
    """Listed by a live memory that supersedes it."""
    return f"""EXISTS (SELECT 1
                         FROM supersessions
                         JOIN memories newer ON newer.id = supersessions.newer_id
                        WHERE supersessions.older_id = {id_} AND {live("newer")})"""
