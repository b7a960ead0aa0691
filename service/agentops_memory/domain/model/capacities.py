"""How much an agent may hold."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """How many entries an agent has at most (§9.4): working ones outside of tasks, and episodic."""

    working: int = 1_000
    episodic: int = 1_000
