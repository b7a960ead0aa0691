"""The view of a memory: what it shows, and everything that can be done with one."""

import pytest

from ..support.pages import get, press
from ..support.service import Service, observation


@pytest.mark.slow
def test_each_action_does_what_it_says(service: Service) -> None:
    service.save("The door is green.")
    service.save("The door is blue, and so is the gate.")

    def after(button: str, **fields: str) -> dict[str, object]:
        page = press(service.http, get(service.http, "/ui/memories/1"), button, fields)
        assert page.status == 200, page.text
        found: dict[str, object] = service.http.get("/observations/1").json()
        return found

    assert after("Pin")["pinned"] is True
    assert "pinned" not in after("Unpin")
    assert after("Still true")["confirmed_at"] == "2030-01-01T12:00:00Z"
    ending = after("Expire it", expires_at="2030-02-01T10:30")
    assert ending["expires_at"] == "2030-02-01T10:30:00Z"
    assert "expires_at" not in after("Keep it")
    assert (
        after("Set the review date", review_at="2030-03-01T08:00")["review_at"]
        == "2030-03-01T08:00:00Z"
    )
    assert "review_at" not in after("Set the review date", review_at="")
    assert after("Supersede it", other="#2")["superseded_by"] == [2]
    assert after("Expire it", expires_at="")["expired"] is True


@pytest.mark.slow
def test_an_edit_changes_what_differs_and_is_redacted(service: Service) -> None:
    service.save("One\r\nTwo\rThree", title="Lines", tags=["a", "b"])
    page = get(service.http, "/ui/memories/1/edit")
    unchanged = press(service.http, page, "Save")
    assert "Nothing was changed" in unchanged.text
    assert service.http.get("/observations/1").json()["content"] == "One\r\nTwo\rThree"

    secret = "ghp_" + "a1B2" * 9
    changed = press(service.http, page, "Save", {"title": "Key", "content": f"Use {secret}."})

    assert changed.status == 200
    assert secret not in service.http.get("/observations/1").text
    assert [it["revision"] for it in service.http.get("/observations/1/history").json()] == [2, 1]


def test_a_fault_of_an_edit_is_said_beside_what_was_written(service: Service) -> None:
    service.save("The door is green.")
    page = get(service.http, "/ui/memories/1/edit")

    refused = press(service.http, page, "Save", {"title": "t" * 501, "content": "Mine."})

    assert refused.status == 400
    assert "title exceeds 500 chars" in refused.text
    assert dict(refused.form("Save").fields)["content"] == "Mine."


def test_the_second_change_of_a_memory_shows_both_versions(service: Service) -> None:
    service.save("The door is green.")
    first, second = (get(service.http, "/ui/memories/1/edit") for _ in range(2))
    press(service.http, first, "Save", {"content": "The door is blue."})

    both = press(service.http, second, "Save", {"content": "The door is red."})

    assert both.status == 409
    assert tuple(tag for tag, _ in both.elements if tag in {"del", "ins"}) == ("del", "ins")
    assert service.http.get("/observations/1").json()["content"] == "The door is blue."
    settled = press(service.http, both, "Save")
    assert (settled.status, service.http.get("/observations/1").json()["content"]) == (
        200, "The door is red.",
    )  # fmt: skip
    by_rest = service.http.patch("/observations/1", json={"content": "White.", "revision": 1})
    told = {"error": "This memory is at revision 3 now, not at 1."}
    assert (by_rest.status_code, by_rest.json()) == (409, told)
    by_rest = service.http.patch("/observations/1", json={"content": "White.", "revision": 3})
    assert by_rest.json()["content"] == "White."


@pytest.mark.slow
def test_an_action_on_what_changed_meanwhile_shows_both_versions(service: Service) -> None:
    gate = str(service.save("The gate is blue.")["id"])
    for button, fields in (
        ("Pin", {}), ("Still true", {}), ("Delete", {}), ("Expire it", {"expires_at": ""}),
        ("Set the review date", {"review_at": "2030-03-01"}), ("Supersede it", {"other": gate}),
    ):  # fmt: skip
        id_ = service.save("The door is green.", title=button)["id"]
        page, path = get(service.http, f"/ui/memories/{id_}"), f"/observations/{id_}"
        service.http.patch(path, json={"content": f"The door is red, {button}."}).raise_for_status()
        changed = service.http.get(path).json()

        both = press(service.http, page, button, fields)

        assert (both.status, service.http.get(path).json()) == (409, changed)
        assert f"Memory #{id_} has changed since you opened the page" in both.text
        assert [tag for tag, _ in both.elements if tag in {"del", "ins"}][:2] == ["del", "ins"]
        assert press(service.http, both, button, fields).status == 200
        assert service.http.get(path).json() != changed


def test_what_is_deleted_is_restored_from_its_revisions(service: Service) -> None:
    service.save("The door is green.")
    before = get(service.http, "/ui/memories/1")
    deleted = press(service.http, before, "Delete")
    assert service.http.get("/observations/1").status_code == 404
    assert "Deleted" in deleted.text
    pinned = press(service.http, before, "Pin")  # in another tab
    assert (pinned.status, "Deleted" in pinned.text) == (404, True)

    restored = press(service.http, pinned, "Restore")

    assert (restored.status, "Restored" in restored.text) == (200, True)
    assert service.http.get("/observations/1").json()["content"] == "The door is green."


def test_an_erasure_says_first_what_it_would_do_and_leaves_a_receipt(service: Service) -> None:
    service.save("The code of the door is 4711.")
    plan = get(service.http, "/ui/memories/1/erase")
    assert "1 revision" in plan.text

    receipt = press(service.http, plan, "Erase memory #1")

    assert receipt.status == 200
    assert receipt.url.path.startswith("/ui/erasures/")
    twin = service.http.get(receipt.url.path.removeprefix("/ui")).json()
    assert twin["observation_ids"] == [1]
    assert get(service.http, "/ui/memories/1").status == 404


def test_it_shows_what_rest_tells_whole_and_stays_small(service: Service) -> None:
    plain, costly = "word " * 10_000, "\u202ea" * 25_000
    script = (
        "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 e\u0301\u0301 "
        "\U0001f469\u200d\U0001f4bb \u0646\u0645\u06cc\u200c\u062e\u0648"
    )
    service.save(script, tags=["door", "paint"], topic_key="house/door", pinned=True)
    service.save(plain, title="plain")
    service.save(costly, title="costly", session_id="s2")

    page, html = get(service.http, "/ui/memories/1"), service.http.get("/ui/memories/1").text
    whole, clipped = (service.http.get(f"/ui/memories/{it}").text for it in (2, 3))

    for told in ("house/door", "paint", "Pinned", "s1", "demo", "2030-01-01"):
        assert told in page.text
    assert page.links["/observations/1"] == "/observations/1"
    assert f"curl {service.url}/observations/1" in page.text
    assert f"<bdi>{script}</bdi>" in html
    assert script in dict(get(service.http, "/ui/memories/1/edit").form("Save").fields)["content"]
    assert plain.strip() in whole
    assert "more characters" in clipped
    assert max(len(whole.encode()), len(clipped.encode())) < 300_000
    assert len(service.http.get("/ui/memories/3/edit").content) < 300_000


def test_similar_ones_are_shown_and_one_supersedes_another(service: Service) -> None:
    service.save("Orders wait in a queue before they are billed.", title="Orders wait")
    body = observation("Orders wait in a long queue before they are billed.", title="Orders wait")
    saved = service.http.post("/observations", params={"similar": "3"}, json=body).json()
    assert [it["id"] for it in saved["similar"]] == [1]

    page = get(service.http, "/ui/memories/2")
    looked = get(
        service.http, get(service.http, "/ui/memories/1").links["Look for similar memories"]
    )

    percent = f"{saved['similar'][0]['score'] * 100:.0f} % alike"
    assert percent in page.text
    assert percent in looked.text
    press(service.http, page, "This one supersedes it")
    assert service.http.get("/observations/1").json()["superseded_by"] == [2]
