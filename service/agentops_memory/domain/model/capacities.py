"""How many entries an agent may hold (RFC-0015 §9.4)."""

from dataclasses import dataclass

LARGEST_CAPACITY = 100_000  # episodic entries of an agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """How many entries an agent has at most: working ones outside of tasks, and episodic."""

    working: int = 1_000
    episodic: int = 1_000
