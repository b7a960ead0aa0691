"""Reviews and look-alikes: what somebody should look at, and what a save tells of."""

from pathlib import Path

import httpx
import pytest

from ..support.callers import calling, made_key
from ..support.recall import changed, read, saved
from ..support.requirements import requirement
from ..support.service import START, Service, observation, serving

RABBIT = "Orders of the shop travel through a rabbit queue in Zurich."
STREAM = "Orders of the shop travel through a kafka stream in Zurich."


def reviewed(service: Service, **asked: str) -> list[tuple[str, int]]:
    """The reasons and ids of a list of reviews."""
    items = service.http.get("/review", params=asked).json()["items"]
    return [(item["reason"], item["observation"]["id"]) for item in items]


def similar(service: Service, content: str, most: int = 3, **fields: object) -> dict[int, float]:
    """The look-alikes that a save tells of, with their scores."""
    body = observation(content, title="Queue", **fields)
    answer = service.http.post(f"/observations?similar={most}", json=body)
    assert answer.status_code == 201, answer.text
    return {each["id"]: each["score"] for each in answer.json()["similar"]}


@requirement("life:7:date", "life:8:confirm")
def test_a_review_is_due_from_its_date_until_somebody_looks(service: Service) -> None:
    for number in range(5):
        saved(service, f"Setting {number}.", review_at="2030-01-01T12:01:00Z")
    service.clock.advance(seconds=59.999_999)
    assert reviewed(service) == []
    service.clock.advance(seconds=0.000_001)
    assert reviewed(service) == [("review_due", memory) for memory in (1, 2, 3, 4, 5)]

    confirmed = service.http.post("/observations/1/confirm").json()
    changed(service, 2, title="Changed")
    saved(service, "Setting 2.")  # a duplicate
    changed(service, 4, review_at="2030-01-01T12:00:30Z", title="Named")
    service.http.post("/observations/5/restore", json={"revision": 1}).raise_for_status()

    assert confirmed["confirmed_at"] == "2030-01-01T12:01:00Z"
    assert (confirmed["revision_count"], "review_at" in confirmed) == (1, False)
    assert reviewed(service) == [("review_due", 4)]


@requirement("life:7:period")
def test_a_type_is_due_when_its_period_has_passed(path: Path) -> None:
    with serving(path, MEMORY_REVIEW_AFTER="config=1h,decision=2h") as service:
        saved(service, "A setting.", type="config")
        saved(service, "A decision.", type="decision")
        saved(service, "A note.", type="note")
        service.clock.advance(hours=1)
        assert reviewed(service) == [("review_due", 1)]
        service.clock.advance(hours=1)
        assert reviewed(service) == [("review_due", 2), ("review_due", 1)]
        service.http.post("/observations/1/confirm")
        assert reviewed(service, project="demo") == [("review_due", 2)]


@requirement("life:8:confirm")
def test_a_reader_confirms_nothing(path: Path) -> None:
    with serving(path) as service:
        saved(service, "There.")
        with calling(service, made_key(path, "reader")) as reader:
            assert reader.post("/observations/1/confirm").status_code == 403
        with calling(service, made_key(path, "writer")) as writer:
            assert writer.post("/observations/1/confirm").status_code == 200
            assert writer.post("/observations/9/confirm").status_code == 404


@requirement("life:10:reasons")
def test_a_list_has_a_line_for_each_reason_newest_first_in_pages(service: Service) -> None:
    saved(service, "Ends soon.", expires_at="2030-01-08T11:00:00Z", review_at=START.isoformat())
    saved(service, "Ends later.", expires_at="2030-01-09T12:00:00Z")
    old = saved(service, "Replaced.", review_at=START.isoformat())
    saved(service, "Replaces.", supersedes=[old])
    everything = [("review_due", 1), ("expires_soon", 1)]
    assert reviewed(service) == everything
    assert reviewed(service, reason="expires_soon") == everything[1:]
    assert reviewed(service, project="other") == []

    pages, before = [], None
    while True:
        asked = {"limit": "1"} | ({"before": before} if before else {})
        page = service.http.get("/review", params=asked).json()
        pages += [(item["reason"], item["observation"]["id"]) for item in page["items"]]
        if not (before := page.get("next")):
            break
    assert pages == everything

    wrong = ["reason=none", "before=1", "before=1-similar-1", f"before={'9' * 18}-similar-1-1"]
    refused = [service.http.get(f"/review?{each}").status_code for each in wrong[:3]]
    assert refused == [400] * 3
    assert service.http.get(f"/review?{wrong[3]}").status_code in (200, 400)


@requirement("life:9:alike", "life:9:not")
def test_a_save_tells_what_says_nearly_the_same(service: Service) -> None:
    saved(service, RABBIT, title="Queue")
    saved(service, "The cafeteria closes at noon.", title="Lunch")
    saved(service, RABBIT, title="Queue", project="other")

    assert similar(service, STREAM) == {1: 0.77}
    assert similar(service, RABBIT + " Really.", supersedes=[1]) == {4: 0.71}
    assert similar(service, "Nothing of the kind.") == {}
    assert "similar" not in service.save("Another one.")
    for wrong in ("11", "-1", "x"):
        refused = service.http.post(f"/observations?similar={wrong}", json=observation("x"))
        assert refused.status_code == 400


@pytest.mark.slow
@requirement("life:9:alike")
def test_a_score_is_the_same_beside_ten_memories_and_beside_three_hundred(
    service: Service, tmp_path: Path
) -> None:
    with serving(tmp_path / "other.db") as other:
        for count, place in ((10, service), (300, other)):
            rows = [
                observation(f"{RABBIT} {number} shop", title=f"Note {number}")
                for number in range(count)
            ]
            assert place.http.post("/import", json={"observations": rows}).status_code == 200
            saved(place, RABBIT, title="Queue")
        ids = [max(similar(it, STREAM, most=10).items()) for it in (service, other)]
    assert ids == [(11, 0.77), (301, 0.77)]


@requirement("life:9:again")
def test_a_repeated_save_tells_the_look_alikes_of_then(service: Service) -> None:
    saved(service, RABBIT, title="Queue")
    headers = {"Idempotency-Key": "once"}
    body = observation(STREAM, title="Queue")
    first = service.http.post("/observations?similar=3", json=body, headers=headers)
    saved(service, STREAM + " More.", title="Queue")

    again = service.http.post("/observations?similar=3", json=body, headers=headers)

    assert again.json() == first.json()
    assert first.json()["similar"][0]["id"] == 1


@requirement("life:10:pairs")
def test_a_pair_is_told_until_somebody_settles_it(service: Service) -> None:
    saved(service, RABBIT, title="Queue")
    similar(service, STREAM)
    (item,) = service.http.get("/review?project=demo").json()["items"]
    told = (item["reason"], item["observation"]["id"], item["other"]["id"], item["score"])
    assert told == ("similar", 2, 1, 0.77)

    changed(service, 2, supersedes=[1])
    assert reviewed(service) == []
    changed(service, 2, supersedes=[])
    assert reviewed(service) == [("similar", 2)]
    service.http.post("/observations/1/confirm")
    assert reviewed(service) == []
    assert read(service, 2)["id"] == 2


@requirement("life:10:access")
def test_a_pair_is_told_to_those_who_may_read_both(path: Path) -> None:
    with serving(path) as service:
        saved(service, RABBIT, title="Queue", scope="global", project="theirs")
        similar(service, STREAM)
        saved(service, RABBIT, title="Queue", project="theirs")
        similar(service, STREAM, project="theirs")
        with calling(service, made_key(path, "reader", projects=("demo",))) as narrow:
            assert _pairs(narrow) == [(2, 1)]
        with calling(service, made_key(path, "reader", projects=("nobodys",))) as stranger:
            assert _pairs(stranger) == []


def _pairs(http: httpx.Client) -> list[tuple[int, int]]:
    items = http.get("/review?reason=similar").json()["items"]
    return [(item["observation"]["id"], item["other"]["id"]) for item in items]
