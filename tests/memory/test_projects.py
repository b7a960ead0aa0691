"""Project names: one folding, wherever a name is read or written."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.memory.space import project_name
from agentops_memory.recall.visible import invisible

from ..support.requirements import requirement
from ..support.samples import examples
from ..support.service import Service, serving

# What changes its length or its letter with its case (ß, ς) has no one casing to come back to;
# what is invisible, and a star, is in no new name.
_LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]).filter(
    lambda c: (
        len({project_name(form) for form in (c, c.upper(), c.lower())}) == 1
        and c not in "σς*"
        and not invisible(c)
    )
)
NAMES = st.text(_LETTERS, min_size=1, max_size=30).filter(project_name)
SPELLINGS = st.sampled_from(
    [
        str.upper, str.lower, str.swapcase, lambda name: f" \t{name}\n\u2003",
        lambda name: unicodedata.normalize("NFD", name),
        lambda name: unicodedata.normalize("NFC", name),
        lambda name: unicodedata.normalize("NFD", name.upper()),
    ]
)  # fmt: skip
RACY = examples(40)


@requirement("agentops:projects:folded")
@given(st.text())
def test_folding_twice_is_folding_once(name: str) -> None:
    folded = project_name(name)

    assert project_name(folded) == folded
    assert unicodedata.is_normalized("NFC", folded)


@requirement("agentops:projects:folded", "agentops:fault:folded-on-write-only")
def test_any_spelling_of_a_name_reaches_the_same_rows(path: Path) -> None:
    with serving(path) as service:

        @RACY
        @given(NAMES, SPELLINGS, SPELLINGS)
        def check(name: str, write: Callable[[str], str], read: Callable[[str], str]) -> None:
            saved = service.save("word", project=write(name), topic_key=name)
            asked = {"project": read(name), "limit": "1000"}
            found = service.http.get("/observations/recent", params=asked).json()
            assert saved["id"] in [row["id"] for row in found]
            assert service.save("word", project=read(name), topic_key=name)["id"] == saved["id"]

        check()


@requirement("agentops:projects:folded")
def test_every_endpoint_folds(service: Service) -> None:
    for number, spelling in enumerate(["Größe", " GRÖẞE\n", "gro\u0308ße"]):
        named = {"project": spelling}
        service.http.post("/sessions", json={"id": f"a{number}", **named})
        service.http.post(
            f"/sessions/b{number}/end", params=named, json={"messages": [{"role": "user"}]}
        )
        service.save(f"word {number}", session_id="a0", **named)
    seen = {"project": "GRO\u0308ẞE ", "q": "word", "query": "word"}

    for path in ("/observations/recent", "/search"):
        assert len(service.http.get(path, params=seen).json()) == 3
    sessions = service.http.get("/sessions/recent", params=seen | {"limit": "9"}).json()
    assert [row["project"] for row in sessions] == ["größe"] * 6
    context = service.http.get("/context", params=seen).json()
    assert [len(part) for part in context.values()] == [3, 3]
    exported = service.http.get("/export", params=seen).json()
    assert (len(exported["sessions"]), len(exported["observations"])) == (6, 3)
    assert service.http.get("/stats", params=seen).json() == {
        "total_sessions": 6, "total_observations": 3, "projects": ["größe"],
    }  # fmt: skip
