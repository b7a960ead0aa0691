"""What joins a project in a context: memory stores, and what agents remember (RFC-0015 §6.3)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..engine.engine import Transaction
from ..errors import NotFound
from ..memory.model.agent_memory import Eyes
from ..memory.model.search import Filter
from ..memory.model.space import StoreId
from ..openintent.sql.namespaces import NamespaceTable
from ..stores.rules.rules import known_store

NO_NAMESPACE = "No such namespace."


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Stores; and by an agent's eyes its own episodic memory, and namespaces."""

    stores: tuple[StoreId, ...] = ()
    eyes: Eyes | None = None  # needed for what follows
    episodic: bool = False
    namespaces: tuple[str, ...] = ()

    def filters(self, tx: Transaction, of: Filter) -> Iterator[Filter]:
        """Each as a place of its own, where what is asked for besides is as in a project.

        NotFound for a store that there is not, and for a namespace that these eyes may not read.
        """
        place = Filter(type=of.type, tag=of.tag, is_current=True)
        for store in self.stores:
            known_store(tx, store)
            yield replace(place, store=store)
        if self.eyes is None:
            return
        if self.episodic:
            yield replace(place, agent=self.eyes.agent)
        for name in self.namespaces:
            if tx[NamespaceTable].get(name, self.eyes) is None:
                raise NotFound(NO_NAMESPACE)
            yield replace(place, namespace=name)


ALONE = Joining()
