"""New names show all that they hold; those that are stored already go on, whatever that is."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from agentops_memory.memory.space import project_name
from agentops_memory.recall.text import invisible, printable

from ..support.agents import agent
from ..support.callers import calling, made_key
from ..support.requirements import requirement
from ..support.samples import examples, for_each
from ..support.service import Service, observation, serving
from ..support.terminal import Terminal

UNSEEN = {
    "bidirectional": "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    "of no width": "\u200b\u2060\ufeff\u00ad\u034f\u180e\u2061\u2064\u206a\u206f\ufff9\ufffb",
    "fillers and blanks": "\u115f\u1160\u3164\uffa0\u2800\u17b4\U0001d159",
    "selectors": "\ufe00\ufe0e\ufe0f\u180b\U000e0100\U000e01ef",
    "tags": "\U000e0001\U000e0020\U000e0041\U000e007f\U000e0fff",
    "lines and controls": "\n\t\r\x1b\x07\x7f\x85\x9b\u2028\u2029",
    "joiners": "\u200c\u200d",
}
EVERY = "".join(UNSEEN.values())
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"  # "I want", as it is written
PLAIN = [
    "billing", "größe", PERSIAN, "क\u094d\u200dष", "র\u200d\u09cdয", "ශ\u0dca\u200dර\u0dd3",
    "東京 1", "서울", "x\u3000y", "é", "e\u0301", "👩\u200d💻", "👩🏽\u200d🚀", "🏳\ufe0f\u200d🌈",
    "❤\ufe0f\u200d🔥", "1\ufe0f\u20e3", "🙂\u200d↔\ufe0f", "\u06dd5", "\U0001fae9", "a-b_c/d.e",
]  # fmt: skip
# What would be visible beside other characters.
DOUBLES = {
    "1\ufe0f": "\ufe0f", "1\u20e3\ufe0f": "\ufe0f", "a\ufe0f\u20e3": "\ufe0f",
    "a\u200cم": "\u200c", "م\u200ca": "\u200c", "\u200cم": "\u200c", "م\u200c": "\u200c",
    "👩\u200d": "\u200d", "👩\u200da": "\u200d", "a\u200d👩": "\u200d",
}  # fmt: skip
HIDDEN = "shop\u200b"


@pytest.fixture
def older(service: Service) -> Service:
    """A service with a session and a memory of names that no new one may have."""
    stored = observation(
        "apple", project=HIDDEN, session_id="s\u202e1", tags=["t\u2060"], topic_key="k\u00ad"
    )
    service.http.post("/import", json={"observations": [stored]}).raise_for_status()
    return service


@requirement("agentops:names:visible")
@for_each("name, sign", DOUBLES.items())
def test_what_needs_its_neighbours_is_refused_without_them(
    service: Service, name: str, sign: str
) -> None:
    answer = service.http.post("/sessions", json={"id": "s", "project": name})

    assert answer.json()["error"].endswith(f"invisible character U+{ord(sign):04X}")


@requirement("agentops:names:visible", "agentops:validation:every-fault")
def test_every_new_name_of_a_save_is_named(service: Service) -> None:
    fields = {"session_id": "s\u200b", "project": "p\u202eq", "topic_key": "k\u2060"}
    body = observation("apple", tags=["a", "b\u3164", "c\ufeff"], **fields)

    answer = service.http.post("/observations", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"] == "validation failed: " + "; ".join(
        f"{field} has the invisible character {sign}"
        for field, sign in [
            ("session_id", "U+200B"), ("project", "U+202E"), ("tags[1]", "U+3164"),
            ("tags[2]", "U+FEFF"), ("topic_key", "U+2060"),
        ]
    )  # fmt: skip


@requirement("agentops:names:visible")
def test_a_session_that_is_told_of_late_has_no_such_name_either(service: Service) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    for step in ("messages", "end"):
        of_id = service.http.post(f"/sessions/s%E2%80%8B/{step}", json=body)
        of_project = service.http.post(f"/sessions/s/{step}?project=p%E2%80%8B", json=body)

        assert of_id.json()["error"] == "validation failed: id has the invisible character U+200B"
        assert of_project.json()["error"].endswith("project has the invisible character U+200B")
    assert service.http.get("/stats").json()["total_sessions"] == 0


@pytest.mark.slow
@requirement("agentops:names:visible")
def test_names_of_every_script_and_emoji_are_taken(service: Service) -> None:
    for name in PLAIN:
        service.save("apple", session_id=name, project=name, tags=[name], topic_key=name)
        service.http.post("/sessions", json={"id": f"{name}2", "project": name}).raise_for_status()

    assert len(service.http.get("/stats").json()["projects"]) == len(set(map(project_name, PLAIN)))


@requirement("agentops:names:known-go-on")
def test_names_that_are_stored_go_on_taking_saves(older: Service) -> None:
    names = {"project": HIDDEN, "session_id": "s\u202e1", "topic_key": "k\u00ad"}
    again = older.save("pear", tags=["t\u2060"], **names)
    older.save("quince", project=HIDDEN, session_id="s2")
    older.http.post("/sessions", json={"id": "s3", "project": HIDDEN}).raise_for_status()
    older.http.post("/sessions", json={"id": "s\u202e1", "project": "p\u200b"}).raise_for_status()
    older.http.post("/sessions/s%E2%80%AE1/end", json={}).raise_for_status()
    path = f"/observations/{again['id']}"
    changed = older.http.patch(path, json={"tags": ["t\u2060", "new"]})
    more = observation("pear", tags=["t\u2060", "x\u200b"], **names)
    refused = [
        older.http.patch(path, json={"tags": ["a", "t\u200b"]}),
        older.http.post("/observations", json=more),
    ]

    assert again["action"] == "updated"
    assert changed.json()["tags"] == ["t\u2060", "new"]
    for answer in refused:
        assert (answer.status_code, answer.json()["error"]) == (
            400, "validation failed: tags[1] has the invisible character U+200B",
        )  # fmt: skip
    assert older.http.get("/stats").json() == {
        "total_sessions": 3, "total_observations": 2, "projects": [HIDDEN],
    }  # fmt: skip
    older.http.delete(f"/projects/{HIDDEN}?hard=true").raise_for_status()
    assert older.http.post("/observations", json=observation("a", project=HIDDEN)).is_client_error


@requirement("agentops:names:known-go-on")
@for_each(
    "project, stored",
    [
        ("a\u200b", {"sessions": [{"id": "s1", "project": "a\u200b"}]}),
        ("b\u200b", {"sessions": [{"id": "s2", "project": "shop"}],
                     "observations": [observation("apple", project="b\u200b")]}),
    ],
)  # fmt: skip
def test_a_project_is_known_by_whatever_it_holds(
    service: Service, project: str, stored: dict[str, object]
) -> None:
    service.http.post("/import", json=stored).raise_for_status()

    service.save("pear", project=project, session_id=f"of {project[0]}")


@requirement("agentops:names:known-go-on")
def test_a_read_finds_what_has_such_a_name_and_refuses_none(older: Service) -> None:
    for parameters, found in (
        ({"project": HIDDEN, "tag": "t\u2060"}, 1), ({"project": "p\u202e"}, 0), ({"tag": EVERY}, 0)
    ):  # fmt: skip
        answers = [
            older.http.get(path, params={**parameters, "q": "apple", "query": "apple"})
            for path in ("/observations/recent", "/search", "/context", "/sessions/recent")
        ]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert [len(answer.json()) for answer in answers[:2]] == [found] * 2


@requirement("agentops:names:visible")
def test_no_new_project_is_a_pattern(service: Service) -> None:
    stored = [observation("apple", project="team-*")]
    service.http.post("/import", json={"observations": stored}).raise_for_status()

    for name in ("*", "a*", "*b*"):
        answer = service.http.post("/observations", json=observation("apple", project=name))
        assert answer.json() == {
            "error": "validation failed: project has a *, as key patterns have"
        }
    for name in ("a?", "[a]", "team-*"):
        service.save("apple", project=name)


def test_a_key_that_may_not_save_into_a_project_hears_that_first(service: Service) -> None:
    with calling(service, made_key(service.path, "writer", projects=("shop",))) as client:
        answer = client.post("/observations", json=observation("apple", project=HIDDEN))

    assert answer.status_code == 403


def test_an_agent_is_told_in_a_sentence(service: Service) -> None:
    with agent(f"{service.url}/mcp/shop%E2%80%8B") as ours:
        said = ours.refusal("mem_save", title="Queue", content="Orders go through a queue.")

        assert "project has the invisible character U+200B" in said
        assert not ours.call("mem_search", query="queue").is_error


def test_a_project_is_renamed_by_the_name_that_the_list_shows_and_merged_either_way(
    older: Service,
) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(older.path)})

    _, row = terminal.say("projects", "list").splitlines()
    shown = row.split()[0]
    to_another = terminal.run("projects", "rename", HIDDEN, "p\u202e")
    done = terminal.run("projects", "rename", HIDDEN, "shop")

    assert shown == r"shop\u200b"
    assert _unescaped(shown) == HIDDEN
    assert to_another.exit_code == 1
    assert "project has the invisible character U+202E" in to_another.stderr
    assert (done.exit_code, done.stdout[:29]) == (0, r"Done: rename shop\u200b to sh")
    older.http.post("/import", json={"observations": [observation("fig", project=HIDDEN)]})
    terminal.say("projects", "merge", "shop", HIDDEN, "--yes")
    older.save("quince", project="shop")
    terminal.say("projects", "merge", HIDDEN, "shop", "--yes")
    assert older.http.get("/stats").json()["projects"] == ["shop"]


def test_a_new_key_has_no_pattern_that_hides_something(path: Path) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(path)})
    create = ("keys", "create", "--name", "ci", "--role", "writer", "--project")

    refused = terminal.run(*create, "bill\u200bing-*")

    assert refused.exit_code == 1
    assert refused.stderr == (
        "agentops-memory: A project pattern must not contain invisible characters, such as "
        "U+200B.\n"
    )
    assert terminal.run(*create, f"{PERSIAN}-*").exit_code == 0


@pytest.mark.slow
def test_every_code_point_is_seen_or_not_by_its_category() -> None:
    """Beside letters, where nothing needs it: what is no control, no format sign and no filler."""
    listed = set(EVERY) | set(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000)]))
    listed |= set(map(chr, [0x17B5, 0x180C, 0x180D, 0x180F, 0x2065, *range(0xFFF0, 0xFFF9)]))
    numbering = set(
        "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    )

    for sign in map(chr, [*range(0x20000), *range(0xE0000, 0xE1000)]):
        of_category = unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp")
        expected = sign not in numbering and (of_category or sign in listed)
        assert bool(invisible(f"a{sign}b")) is expected, ascii(sign)


@given(st.text(st.characters(categories=["Ll", "Lu", "Nd"], max_codepoint=0x5FF), max_size=9),
       st.sampled_from(EVERY), st.integers(0, 9))  # fmt: skip
def test_a_name_has_no_double_that_differs_by_what_nobody_sees(
    name: str, sign: str, place: int
) -> None:
    assert not invisible(name)
    assert invisible(name[:place] + sign + name[place:]) == f"U+{ord(sign):04X}"


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(EVERY + "👩❤می1")))
def test_what_is_printed_can_be_read_back_and_a_folded_name_hides_what_it_hid_before(
    text: str,
) -> None:
    shown, folded = printable(text), project_name(text)

    assert not invisible(shown)
    assert shown.isprintable() or not invisible(text)
    plain = text.replace("\\", "")
    assert _unescaped(printable(plain)) == plain
    assert invisible(unicodedata.normalize("NFC", folded)) == invisible(folded)


def _unescaped(shown: str) -> str:
    """As bash reads it in $'...'."""
    head, *parts = shown.split("\\")
    return head + "".join(
        chr(int(part[1 : 5 if part[0] == "u" else 9], 16)) + part[5 if part[0] == "u" else 9 :]
        for part in parts
    )


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
