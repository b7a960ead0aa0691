"""What is asked in bad faith is answered, loses nothing, and by both engines in the same way."""

import random
from pathlib import Path

import pytest

from ..differential.pair import Pair, paired
from ..support.service import Service, observation

HAN = range(0x4E00, 0x9FA6)
CUT = "अ" * 20_000  # one word, of which the index has 32,768 bytes: it ends within a letter


@pytest.mark.heavy
@pytest.mark.parametrize("word", [CUT, f"a{'я' * 20_000}"])
def test_a_word_that_the_index_cuts_within_a_letter_is_stored_and_found(
    service: Service, word: str
) -> None:
    for number in range(12):  # more than there are threads of the database
        service.save(f"{word} {number}")
    service.save("plain words")

    alike = service.http.post("/observations?similar=3", json=observation(f"{word} once more"))
    found = service.http.get("/search", params={"q": "plain", "project": "demo"})

    assert alike.status_code == 201
    assert found.json()[0]["content"] == "plain words"


@pytest.mark.heavy
def test_words_that_occur_a_hundred_thousand_times_are_counted_alike(
    tmp_path: Path, postgresql: str
) -> None:
    with paired(tmp_path, postgresql) as pair:
        store = pair.ask("POST", "/anthropic/v1/memory_stores", {"name": "s"}).json()["id"]
        entries = f"/anthropic/v1/memory_stores/{store}/memories"
        for place, content in enumerate(["a.a.aA " * 14_000, "aA " * 34_000, "㌂" * 34_000, "アa"]):
            pair.ask("POST", entries, {"path": f"/{place}", "content": content})
        for asked in ("a", "aA", "ア", "アア"):
            pair.ask("GET", f"/context?query={asked}&stores={store}&explain=true")

    assert _told(pair) == []


@pytest.mark.heavy
def test_long_texts_of_distinct_words_are_imported_and_erased(service: Service) -> None:
    chance = random.Random(1)  # noqa: S311 - the same each time
    contents = ["".join(map(chr, chance.choices(HAN, k=50_000))) for _ in range(21)]
    rows = [observation(it, title="t", created_at="2030-01-01T00:00:00Z") for it in contents]
    service.http.timeout = 600

    imported = service.http.post("/import", json={"observations": rows})
    erased = service.http.delete("/projects/demo?hard=true")

    assert imported.json()["imported_observations"] == len(rows)
    assert erased.json()["observations"] == len(rows)


def _told(pair: Pair) -> list[str]:
    return [str(it)[:1_000] for it in pair.differences]
