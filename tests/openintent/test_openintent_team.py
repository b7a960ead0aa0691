"""A team's work and memory against a model: rights, bindings, limits, ends, events."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from agentops_memory.operations.files.seals import SealFile
from agentops_memory.sqlite import SqliteEngine

from ..support.requirements import requirement
from ..support.service import Clock
from ..support.team_play import Play


def played(path: Path, seed: int, steps: int) -> Counter[str]:
    """What was done, and refused, in a history of so many steps, each of which was compared."""
    clock = Clock()

    async def whole() -> Counter[str]:
        sealer = SealFile(path / "memory.seal", clock).sealer
        async with SqliteEngine.opened(path / "memory.db", clock=clock, sealer=sealer) as engine:
            play = Play(engine, clock, seed)
            for _ in range(steps):
                await play.step()
            return play.counts

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        pytest.param(100, 400, marks=pytest.mark.slow),
        *(pytest.param(seed, 400, marks=pytest.mark.heavy) for seed in (0, 1, 101, 102)),
    ],
)
@requirement(
    "OI-18", "OI-29", "OI-30", "OI-31", "OI-32", "OI-33", "OI-34", "OI-35", "OI-36", "OI-37",
    "OI-38", "OI-39", "OI-40", "OI-41", "OI-42", "OI-43", "OI-55", "OI-56", "OI-79", "OI-80",
)  # fmt: skip
def test_a_team_is_as_a_model_says(tmp_path: Path, seed: int, steps: int) -> None:
    counts = played(tmp_path, seed, steps)

    deeds = ("create", "amend", "change_task", "grant", "batch", "coordinate", "create: Taken")
    assert min(counts[deed] for deed in deeds) > 0, counts
