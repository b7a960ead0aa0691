"""What is read of agents' memory in one transaction."""

from dataclasses import replace
from datetime import datetime

from ...engine.engine import Transaction
from ...errors import Denied, NotFound
from ...memory.model.agent_memory import AgentEntry, AgentEntryId, AgentSummary, Eyes, Place
from ...memory.model.agents import NOT_YOUR_AGENT, AgentId
from ...memory.model.retention import Capacities
from ..sql.entries import AgentTable
from ..sql.intents import IntentTable
from ..sql.namespaces import NamespaceTable
from . import rules

MOST_NAMED = 1_000  # namespaces of a summary


def get(tx: Transaction, entry: AgentEntryId, eyes: Eyes) -> tuple[AgentEntry, datetime]:
    return _readable(rules.known(tx, entry, eyes)), tx.now


def at(tx: Transaction, place: Place) -> tuple[AgentEntry, datetime]:
    found = tx[AgentTable].at(place)
    if found is None or not found.is_there(tx.now):
        raise NotFound(rules.NO_ENTRY)
    return _readable(found), tx.now


def summary(tx: Transaction, agent: AgentId, eyes: Eyes, capacities: Capacities) -> AgentSummary:
    if agent != eyes.agent and not tx[IntentTable].coordinates(eyes, agent):
        raise Denied(NOT_YOUR_AGENT)
    readable = tx[NamespaceTable].page(eyes, MOST_NAMED, 0)
    return replace(
        tx[AgentTable].summary(agent, eyes),
        capacity=rules.episodic_capacity(tx, agent, capacities),
        namespaces=tuple(namespace.name for namespace in readable),
    )


def _readable(entry: AgentEntry) -> AgentEntry:
    if entry.is_lost:
        raise rules.KeyLost
    return entry
