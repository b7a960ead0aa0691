"""Memory stores as other rooms know them: whether there is one that a caller may read."""

from ..engine.engine import Transaction
from ..errors import NotFound
from .model.space import StoreId
from .model.table import Sql

NO_STORE = "No such memory store."


def require_store(tx: Transaction, store: StoreId) -> None:
    """Refuse callers who may not read stores with Denied, and an unknown one with NotFound."""
    tx.caller.require_stores()
    known = "SELECT 1 FROM stores WHERE uid = :uid AND erasure_id IS NULL"
    if not tx[Sql].exists(known, uid=store):
        raise NotFound(NO_STORE)
