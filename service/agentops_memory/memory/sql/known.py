"""What a writer knows of rows while nobody else can have changed them, so that it need not ask."""

from dataclasses import dataclass, field

from ...recall.text.columns import End
from ...recall.text.features import Features
from ..model.memory import SessionId
from ..model.space import Project, Space

MOST = 4096  # of each kind; then all of it is forgotten


@dataclass(slots=True, eq=False)
class Known:
    """Forgotten when a transaction is rolled back, or when a row may have changed otherwise."""

    spaces: dict[Space, tuple[int, int]] = field(default_factory=dict)  # of projects: id and area
    sessions: dict[SessionId, Project] = field(default_factory=dict)
    partitions: dict[int, list[int]] = field(default_factory=dict)  # by area of the index
    # By area of the index, and by space and session: of the newest contents, oldest first.
    ends: dict[int, dict[tuple[int, SessionId], list[End]]] = field(default_factory=dict)
    features: Features | None = None

    def forget(self) -> None:
        for known in (self.spaces, self.sessions, self.partitions, self.ends):
            known.clear()
        self.features = None

    def keep_small(self) -> None:
        kinds = self.spaces, self.sessions, self.partitions, self.ends
        if any(len(it) > MOST for it in kinds):
            self.forget()
