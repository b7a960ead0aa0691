"""Ages in words, rounded down, and where an agent is told them."""

import asyncio

from hypothesis import given, strategies as st

from agentops_memory_client.contract.models import UNITS, age_words

from ..support.agent_memory import Way, agent, one_turn, way
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

__all__ = ["way"]

DAY = 86_400
AGES = {
    -5: "just now", 0: "just now", 59.9: "just now", 60: "1 minute", 5 * 60: "5 minutes",
    3599: "59 minutes", 3600: "1 hour", 3 * 3600: "3 hours", DAY - 1: "23 hours", DAY: "1 day",
    2 * DAY: "2 days", 7 * DAY - 1: "6 days", 7 * DAY: "1 week", 21 * DAY: "3 weeks",
    30 * DAY - 1: "4 weeks", 30 * DAY: "1 month", 150 * DAY: "5 months",
    365 * DAY - 1: "12 months", 365 * DAY: "1 year", 730 * DAY: "2 years",
}  # fmt: skip


@requirement("life:12:words")
@for_each("seconds, words", AGES.items())
def test_an_age_is_told_in_its_largest_whole_unit(seconds: float, words: str) -> None:
    assert age_words(seconds) == words


@given(st.floats(60, 1e11))
def test_an_age_is_never_rounded_up_and_by_less_than_a_unit(seconds: float) -> None:
    count, unit = age_words(seconds).split()
    length = next(length for length, name in UNITS if name == unit.removesuffix("s"))

    assert int(count) * length <= seconds < (int(count) + 1) * length


@requirement("life:12:shown")
def test_a_turn_tells_how_old_each_memory_is_when_it_is_asked(way: Way, service: Service) -> None:
    service.save("The provider needs up to 12 s.", title="Timeouts")
    service.clock.advance(weeks=3)
    service.save("The provider answers again.", title="Now")

    async def run(*, ages: bool) -> str:
        async with agent(way, limit=2, ages=ages) as memory:
            return await one_turn(memory, "How long does the provider need?")

    assert asyncio.run(run(ages=True)) == (
        "<memory:context>\n"
        "- [discovery] Timeouts (3 weeks old): The provider needs up to 12 s.\n"
        "- [discovery] Now (just now): The provider answers again.\n"
        "</memory:context>\n"
    )
    assert "- [discovery] Timeouts: The provider" in asyncio.run(run(ages=False))
    assert ["ages" in it.url.params for it in way.taken("/context")] == [True, False]
