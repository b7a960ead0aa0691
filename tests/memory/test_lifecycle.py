"""The life of a memory over REST: its end, its pin, and what it supersedes."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from ..support.callers import calling, made_key
from ..support.recall import changed, context, found, listed, read, saved
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START, Service, observation, serving

MICROSECOND, MINUTE, HOUR = timedelta(microseconds=1), timedelta(minutes=1), timedelta(hours=1)
FIELDS = {
    "expires_at", "expired", "pinned", "supersedes", "superseded_by", "review_at", "confirmed_at",
}  # fmt: skip
WHOLE = "No such observation."


@requirement("life:fields:unset")
def test_what_is_not_set_is_in_no_answer(service: Service) -> None:
    answer = service.http.post("/observations", json=observation("Plain."))
    hits = service.http.get("/search?q=plain").json()
    lines = service.http.get("/context?project=demo&query=plain").json()["recent_observations"]

    assert list(answer.json()) == ["id", "action", "revision_count", "duplicate_count"]
    assert not FIELDS & read(service, 1).keys()
    assert list(hits[0]) == ["id", "type", "title", "content", "rank"]
    assert list(lines[0]) == ["type", "title", "content"]


@requirement("life:fields:instants", "life:fields:ttl")
def test_an_end_is_told_as_it_was_given_or_from_now_on(service: Service) -> None:
    exact = {"expires_at": "2030-02-01T10:00:00.000001+01:00", "review_at": "2030-03-01T00:00:00Z"}
    first = service.http.post("/observations", json=observation("One.", **exact)).json()
    second = service.http.post("/observations", json=observation("Two.", ttl=60)).json()

    assert first["expires_at"] == read(service, 1)["expires_at"] == "2030-02-01T09:00:00.000001Z"
    assert read(service, 1)["review_at"] == "2030-03-01T00:00:00Z"
    assert second["expires_at"] == "2030-01-01T12:01:00Z"


@requirement("life:fields:null")
def test_null_takes_an_end_away_in_a_change_alone(service: Service) -> None:
    saved(service, "One.", ttl=60, review_at="2030-03-01T00:00:00Z", topic_key="a/b")
    saved(service, "One more.", topic_key="a/b", expires_at=None, review_at=None)
    assert {"expires_at", "review_at"} <= read(service, 1).keys()

    told = changed(service, 1, expires_at=None, review_at=None).json()

    assert not FIELDS & told.keys()


WRONG = [
    ({"ttl": 0}, "ttl must be 1 or more"), ({"ttl": 315_360_001}, "ttl must be 315360000 or less"),
    ({"ttl": True}, "ttl must be a whole number"), ({"ttl": "60"}, "ttl must be a whole number"),
    (
        {"ttl": 60, "expires_at": "2030-02-01T00:00:00Z"},
        "expires_at and ttl must not be used together",
    ),
    ({"expires_at": "2030-02-01T00:00:00"}, "expires_at must be an instant with a time zone"),
    ({"expires_at": "10000-01-01T00:00:00Z"}, "expires_at must be an instant with a time zone"),
    ({"expires_at": 1_900_000_000}, "expires_at must be an instant with a time zone"),
    ({"review_at": "tomorrow"}, "review_at must be an instant with a time zone"),
    ({"pinned": 1}, "pinned must be true or false"),
    ({"supersedes": 1}, "supersedes must be a list"),
    ({"supersedes": [True]}, "supersedes[0] must be the id of an observation"),
    ({"supersedes": [1.0]}, "supersedes[0] must be the id of an observation"),
    ({"supersedes": [0]}, "supersedes[0] must be the id of an observation"),
    ({"supersedes": [1] * 21}, "supersedes exceed 20 items"),
]  # fmt: skip


@requirement("life:fields:bad")
@for_each("fields, says", WRONG)
def test_a_wrong_value_is_refused_and_stores_nothing(
    service: Service, fields: dict[str, object], says: str
) -> None:
    saved(service, "There.")
    before = read(service, 1)

    refusals = [
        service.http.post("/observations", json=observation("New.", **fields)),
        changed(service, 1, **fields),
    ]

    assert [answer.status_code for answer in refusals] == [400, 400]
    assert all(says in answer.json()["error"] for answer in refusals)
    assert read(service, 1) == before
    assert listed(service) == [1]


@requirement("life:fields:change")
def test_a_change_of_a_field_is_a_revision_without_a_text(service: Service) -> None:
    saved(service, "First.")
    assert changed(service, 1, pinned=True).json()["revision_count"] == 2
    assert changed(service, 1, pinned=True).json()["revision_count"] == 2
    assert changed(service, 1, content="Second.").json()["revision_count"] == 3
    assert changed(service, 1, ttl=60, supersedes=[]).json()["revision_count"] == 4

    history = service.http.get("/observations/1/history").json()
    assert [each["content"] for each in history] == ["Second.", "Second.", "First.", "First."]
    restored = service.http.post("/observations/1/restore", json={"revision": 2}).json()
    assert (restored["content"], restored["pinned"]) == ("First.", True)


@requirement("life:1:live", "life:2:exact")
def test_at_its_instant_a_memory_is_in_no_answer(service: Service) -> None:
    saved(service, "The zebra rests.", expires_at=(START + HOUR).isoformat(), topic_key="zoo/zebra")
    saved(service, "The okapi rests.")
    asked = [
        "/observations/recent?project=demo", "/search?q=zebra&project=demo&superseded=true",
        "/search?q=zoo/zebra", "/context?project=demo&query=zebra", "/context?project=demo",
        "/timeline?observation_id=2", "/stats?project=demo", "/search?q=rests&explain=true",
    ]  # fmt: skip

    service.clock.advance(seconds=(HOUR - MICROSECOND).total_seconds())
    before = [service.http.get(path).text for path in asked]
    service.clock.advance(seconds=MICROSECOND.total_seconds())
    after = [service.http.get(path).text for path in asked]

    assert all("zebra" in text for text in before if '"total_sessions"' not in text)
    assert not any("zebra rests" in text for text in after)
    assert service.http.get("/stats?project=demo").json()["total_observations"] == 1
    assert service.http.get("/timeline?observation_id=1").status_code == 404
    assert '"reason":"unknown"' in service.http.get("/search?q=zebra&why_not=1").text


@requirement("life:fields:upsert")
def test_a_save_by_key_sets_what_it_gives_and_adds_what_it_supersedes(service: Service) -> None:
    one, two = saved(service, "One."), saved(service, "Two.")
    memory = saved(service, "At a key.", topic_key="a/b", pinned=True, supersedes=[one], ttl=60)
    saved(service, "At a key again.", topic_key="a/b", supersedes=[two, two])

    told = read(service, memory)
    assert (told["pinned"], told["supersedes"]) == (True, [one, two])
    assert told["expires_at"] == "2030-01-01T12:01:00Z"
    assert changed(service, memory, supersedes=[two]).json()["supersedes"] == [two]


@requirement("life:1:dedup", "life:1:key", "life:2:exact")
def test_until_its_instant_a_memory_holds_its_words_and_its_key(service: Service) -> None:
    end = START + MINUTE  # within the window of duplicates
    words = observation("The gate is shut.", expires_at=end.isoformat())
    keyed = observation("The door is open.", expires_at=end.isoformat(), topic_key="door")

    def actions() -> list[str]:
        answers = [service.http.post("/observations", json=it).json() for it in (words, keyed)]
        return [answer["action"] for answer in answers]

    assert actions() == ["created", "created"]
    service.clock.advance(seconds=(MINUTE - MICROSECOND).total_seconds())
    assert actions() == ["deduplicated", "updated"]
    service.clock.advance(seconds=MICROSECOND.total_seconds())
    assert actions() == ["created", "created"]


@requirement("life:1:key", "life:1:key-taken", "life:1:read")
def test_an_expired_memory_holds_no_key(service: Service) -> None:
    saved(service, "The gate is shut.", ttl=60, topic_key="gate")
    service.clock.advance(seconds=60)

    other = service.http.post(
        "/observations", json=observation("The gate is open.", topic_key="gate")
    ).json()
    told = read(service, 1)

    assert other["action"] == "created"
    assert (told["expired"], told["topic_key"]) == (True, "gate")
    assert service.http.get("/observations/1/history").status_code == 200
    assert changed(service, 1, title="Still there").json()["expired"] is True
    assert service.http.post("/observations/1/confirm").json()["expired"] is True
    assert changed(service, 1, expires_at=None).status_code == 409
    service.http.delete(f"/observations/{other['id']}")
    back = changed(service, 1, expires_at=None).json()
    assert (back["topic_key"], "expired" in back) == ("gate", False)
    assert found(service, "gate") == [1]
    assert saved(service, "The gate is ajar.", topic_key="gate") == 1


@requirement("life:1:key", "life:2:clock")
def test_a_clock_that_went_back_gives_a_key_to_nobody_twice(service: Service) -> None:
    saved(service, "The gate is shut.", ttl=60, topic_key="gate")
    service.clock.advance(seconds=60)
    assert saved(service, "The gate is open.", topic_key="gate") == 2

    service.clock.now = START

    assert [read(service, it)["topic_key"] for it in (1, 2)] == ["gate", "gate"]
    assert changed(service, 1, expires_at=None).status_code == 409
    assert changed(service, 1, title="Still shut").status_code == 200
    assert changed(service, 2, pinned=True).status_code == 200
    assert read(service, 1)["topic_key"] == "gate"
    assert saved(service, "The gate is ajar.", topic_key="gate") == 2
    assert changed(service, 2, ttl=30).status_code == 200
    service.http.delete("/observations/2")
    assert changed(service, 1, expires_at=None).json()["topic_key"] == "gate"
    assert saved(service, "The gate is gone.", topic_key="gate") == 1


@requirement("life:4:first", "life:4:half", "life:4:filters")
def test_pins_come_first_in_at_most_half_of_the_places(service: Service) -> None:
    for number in range(3):
        saved(service, f"Rule {number}.", type="rule", tags=[f"t{number}"])
    for number in range(6):
        saved(service, f"The heron fishes {number}.")
    for memory in (3, 1, 2):  # at one instant: the lower id is first
        changed(service, memory, pinned=True)
    service.clock.advance(seconds=1)
    changed(service, 5, pinned=True)

    assert context(service, "heron", limit="5")[:3] == ["Rule 0.", "Rule 1.", "Rule 2."]
    assert len(context(service, "heron", limit="5")) == 5
    assert context(service, "heron", limit="1") == ["Rule 0."]
    assert context(service, "heron", limit="2")[0] == "Rule 0."
    assert "heron" in context(service, "heron", limit="2")[1]
    assert context(service, "heron", limit="4", tag="t1")[0] == "Rule 1."
    assert context(service, "heron", limit="4", type="discovery")[0] == "The heron fishes 1."
    changed(service, 1, pinned=False)
    assert context(service, "heron", limit="2")[0] == "Rule 1."
    service.clock.advance(seconds=1)
    for memory in (2, 1):  # one that is pinned already keeps its place
        changed(service, memory, pinned=True)
    assert context(service, "heron", limit="8")[:4] == [
        "Rule 1.",
        "Rule 2.",
        "The heron fishes 1.",
        "Rule 0.",
    ]


@requirement("life:4:explain")
def test_a_context_explains_its_pins_and_what_they_pushed_out(service: Service) -> None:
    for number in range(4):
        saved(service, f"The heron fishes {number}.")
    saved(service, "Always wear boots.", pinned=True)

    asked = "/context?project=demo&query=heron&limit=4&explain=true"
    told = service.http.get(f"{asked}&why_not=4").json()

    methods = [line["explain"]["method"] for line in told["recent_observations"]]
    assert methods == ["pinned", *["fts5_bm25"] * 3]
    assert told["explain"]["why_not"]["reason"] == "pins"


@requirement("life:4:bound")
def test_the_twenty_first_pin_is_refused(service: Service) -> None:
    for number in range(20):
        saved(service, f"Rule {number}.", pinned=True)
    ended = saved(service, "Ended.", pinned=True, expires_at=START.isoformat())
    plain = saved(service, "Plain.", topic_key="plain")

    upsert = observation("Plain.", topic_key="plain", pinned=True)
    refusals = [
        changed(service, plain, pinned=True),
        service.http.post("/observations", json=upsert),
        changed(service, ended, expires_at=None),
        service.http.post("/observations", json=observation("One more.", pinned=True)),
    ]
    assert [answer.status_code for answer in refusals] == [409] * 4
    assert all("At most 20" in answer.json()["error"] for answer in refusals)
    service.http.delete("/observations/1")
    assert changed(service, plain, pinned=True).status_code == 200
    assert service.http.post("/observations/1/restore", json={"revision": 1}).status_code == 409
    assert saved(service, "Everywhere.", pinned=True, scope="global")


@requirement("life:4:global")
def test_a_global_pin_opens_the_contexts_of_all_projects(service: Service) -> None:
    saved(service, "Everywhere.", pinned=True, scope="global")
    saved(service, "Here.")

    assert context(service, "here")[0] == "Everywhere."
    assert context(service, "else", project="other") == ["Everywhere."]
    assert context(service, "", scope="project") == ["Here."]


@requirement("life:5:hidden", "life:5:told", "life:5:explain")
def test_what_is_superseded_is_found_on_demand_alone(service: Service) -> None:
    old = saved(service, "The queue is rabbit.", topic_key="zoo/x")
    new = saved(service, "The queue is a stream.", supersedes=[old])

    assert found(service, "queue") == [new]
    assert found(service, "zoo/x") == []
    assert context(service, "queue") == context(service, "") == ["The queue is a stream."]
    assert old in found(service, "queue", superseded="true")
    assert listed(service) == [new, old]
    assert read(service, old)["superseded_by"] == [new]
    hits = service.http.get("/search?q=queue&superseded=true").json()
    assert [hit.get("superseded_by") for hit in hits] == [
        [new] if hit["id"] == old else None for hit in hits
    ]
    why = service.http.get(f"/search?q=queue&explain=true&why_not={old}").json()
    assert why["explain"]["why_not"] == {"id": old, "reason": "superseded", "superseded_by": [new]}
    assert why["results"][0]["explain"]["superseded"] == [old]


@requirement("life:fields:duplicate")
def test_of_two_ends_of_a_duplicate_the_later_holds(service: Service) -> None:
    saved(service, "Same.", ttl=60)
    saved(service, "Same.", ttl=30)
    assert read(service, 1)["expires_at"] == "2030-01-01T12:01:00Z"
    saved(service, "Same.", ttl=90, pinned=True)
    assert read(service, 1)["expires_at"] == "2030-01-01T12:01:30Z"
    saved(service, "Same.")

    told = read(service, 1)
    assert "expires_at" not in told
    assert (told["pinned"], told["duplicate_count"], told["revision_count"]) == (True, 4, 1)


@requirement("life:5:back")
@pytest.mark.parametrize("end", ["delete", "expire", "erase"])
def test_what_was_superseded_is_back_when_the_newer_one_goes(service: Service, end: str) -> None:
    old = saved(service, "The queue is rabbit.")
    new = saved(service, "The queue is a stream.", supersedes=[old], ttl=60)
    match end:
        case "delete":
            service.http.delete(f"/observations/{new}")
        case "expire":
            service.clock.advance(seconds=60)
        case "erase":
            service.http.delete(f"/observations/{new}?hard=true")

    assert found(service, "queue") == [old]
    assert "superseded_by" not in read(service, old)


@requirement("life:5:chain", "life:6:circle", "life:6:through")
def test_a_chain_stays_one_and_a_circle_is_refused(service: Service) -> None:
    first = saved(service, "First queue.")
    second = saved(service, "Second queue.", supersedes=[first])
    third = saved(service, "Third queue.", supersedes=[second], ttl=60)
    assert found(service, "queue") == [third]

    before = read(service, first)
    assert changed(service, first, supersedes=[third]).status_code == 409
    assert changed(service, first, supersedes=[first]).status_code == 409
    service.http.delete(f"/observations/{second}")
    assert changed(service, first, title="New", supersedes=[third]).status_code == 409
    service.clock.advance(seconds=60)
    assert changed(service, first, supersedes=[third]).status_code == 409
    body = observation("Third queue.", topic_key="x", supersedes=[9999])
    assert service.http.post("/observations", json=body).status_code == 404
    assert read(service, first)["title"] == before["title"]
    assert listed(service) == [first]


@requirement("life:6:unknown", "life:6:scopes")
def test_what_cannot_be_superseded_is_refused(path: Path) -> None:
    with serving(path) as service:
        everywhere = saved(service, "Everywhere.", scope="global")
        other = saved(service, "Theirs.", project="theirs")
        gone = saved(service, "Gone.")
        service.http.delete(f"/observations/{gone}")
        ended = saved(service, "Ended.", expires_at=START.isoformat())
        mine = saved(service, "Mine.")

        answers = {it: changed(service, mine, supersedes=[it]) for it in (other, gone, 999, "x")}
        assert {(it.status_code, it.text) for it in answers.values()} == {
            (404, f'{{"error":"{WHOLE}"}}')
        }
        assert changed(service, mine, supersedes=[everywhere]).status_code == 409
        assert changed(service, everywhere, supersedes=[mine]).status_code == 409
        assert changed(service, mine, supersedes=[ended]).json()["supersedes"] == [ended]
        again = saved(service, "Everywhere else.", scope="global", supersedes=[everywhere])
        assert context(service, "", project="x") == ["Everywhere else."]
        uid = service.http.get("/export").json()["observations"][0]["uid"]
        assert changed(service, again, supersedes=[uid]).json()["supersedes"] == [everywhere]

        token = made_key(path, projects=("demo",))
        with calling(service, token) as narrow:
            denied = narrow.patch(f"/observations/{mine}", json={"supersedes": [other]})
            assert (denied.status_code, denied.json()["error"]) == (404, WHOLE)


@requirement("life:6:race")
def test_of_two_saves_that_close_a_circle_one_loses(service: Service) -> None:
    for _ in range(5):
        one, two = saved(service, f"One {_}."), saved(service, f"Two {_}.")
        with ThreadPoolExecutor(2) as pool:
            pairs = [(one, two), (two, one)]
            answers = pool.map(lambda pair: changed(service, pair[0], supersedes=[pair[1]]), pairs)
        assert sorted(answer.status_code for answer in answers) == [200, 409]


@requirement("life:12:ages")
def test_a_context_tells_ages_when_it_is_asked(service: Service) -> None:
    old = saved(service, "The queue is rabbit.")
    service.clock.advance(days=1)
    saved(service, "The queue is a stream.", supersedes=[old])
    lake = saved(service, "The lake is deep.")
    service.clock.advance(hours=2)
    service.http.post(f"/observations/{lake}/confirm")
    service.clock.advance(seconds=30)

    asked = {"project": "demo", "query": "queue", "ages": "true"}
    lines = service.http.get("/context", params=asked).json()["recent_observations"]

    assert [(it["age"], it.get("superseded")) for it in lines] == [(7230, 1), (30, None)]
