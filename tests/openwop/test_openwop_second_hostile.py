"""What the second half of OpenWOP withstands: secrets that stand alone, and races of what is told.

A secret that is known by where its line begins or ends is one also inside of JSON; what is audited
is done, and once; a fixture that is asked for twice at a time is done once, and answered alike.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ..support.callers import audit
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host, Json, ok
from ..support.openwop_proposals import artifact, moved, proposed, revised
from ..support.openwop_seams import Suite, driven, let_in
from ..support.openwop_tenants import anew
from ..support.requirements import requirement
from ..support.samples import for_each

ALONE = (  # secrets that only a line of their own tells from words
    ("password: hunter22", "password: [REDACTED:password]"),
    ("pwd=correcthorse", "pwd=[REDACTED:password]"),
    ("password=letmein99,user=bob", "password=[REDACTED:password],user=bob"),
    ("passwd:zebra-horse-42", "passwd:[REDACTED:password]"),
)
TOGETHER: tuple[tuple[Json, Json], ...] = (  # secrets that only several strings tell
    (
        {"env": [{"name": "DB_PASSWORD", "value": "hunter22x9Q"}]},
        {"env": [{"name": "DB_PASSWORD", "value": "[REDACTED:password]"}]},
    ),
    (
        {"args": ["--password", "hunter22x9Q"], "b": '"'},
        {"args": ["--password", "[REDACTED:password]"], "b": '"'},
    ),
    (
        {"keys": [{"kty": "oct", "k": "abcDEF123abcDEF123abcDEF123"}]},
        {"keys": [{"kty": "oct", "k": "[REDACTED:private-key]"}]},
    ),
    (
        {"password": "hunter22x9Q [BYOK:x]", "a": "<private>", "b": "of b", "c": "</private>"},
        {"password": "[REDACTED:password]", "a": "[REDACTED:private]", "b": "of b",
         "c": "</private>"},
    ),
)  # fmt: skip
GONE = "2020-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with driven(tmp_path_factory.mktemp("hostile") / "memory.db") as driving:
        yield driving


@pytest.fixture(scope="module")
def admin(suite: Suite) -> Iterator[Host]:
    with let_in(suite) as operator:
        yield operator.host


@pytest.mark.slow
@requirement("OW-41", "OW-89")
@pytest.mark.parametrize(("secret", "clean"), ALONE)
def test_a_secret_that_stands_alone_in_a_string_leaves_an_artifact(
    admin: Host, secret: str, clean: str
) -> None:
    given = {"workflowId": "w", "note": secret, "steps": ["x", secret, {"then": [secret]}]}
    stored = {"workflowId": "w", "note": clean, "steps": ["x", clean, {"then": [clean]}]}

    made = proposed(admin, given, kind="automation", title=secret)
    assert made["title"] == clean
    assert made["artifact"] == stored
    assert ok(revised(admin, made["id"], artifact={secret: 1, **given}))["artifact"] == {
        clean: 1, **stored,
    }  # fmt: skip
    ref = ok(moved(admin, made["id"], "apply"))["installedArtifactRef"]
    assert secret not in artifact(admin, ref).text


@requirement("OW-41", "OW-89")
@for_each("given, stored", TOGETHER)
def test_a_secret_that_several_strings_tell_leaves_an_artifact(
    admin: Host, given: Json, stored: Json
) -> None:
    made = proposed(admin, given)

    assert made["artifact"] == stored
    assert ok(revised(admin, made["id"], artifact=stored))["artifact"] == stored


@pytest.mark.slow
@requirement("OW-101")
def test_what_is_withdrawn_undone_or_forgotten_is_audited_once_with_its_tenant(
    suite: Suite, admin: Host
) -> None:
    host = anew(admin)
    for text in ("The proxy waits.", "The checkout works."):
        host.put(text, tags=["subject:ada"])
    run, id_ = ok(host.compact())["runId"], proposed(host)["id"]
    ok(moved(host, id_, "apply"))
    before = len(audit(suite.service.path))

    at_once(*[lambda: host.undo(run), lambda: moved(host, id_, "archive")] * 4)
    at_once(*[lambda: host.forget("ada")] * 4)

    told = audit(suite.service.path)[before:]
    actions = ["memory.forgotten", "pass.undone", "proposal.withdrawn"]
    assert sorted(str(it["action"]) for it in told) == actions
    assert {it["tenant"] for it in told} == {"default"}


@requirement("OW-85")
def test_each_that_waits_fires_with_the_first_live_entry_that_is_not_itself(
    suite: Suite, admin: Host
) -> None:
    host = anew(admin)
    gone = [
        {"id": f"e{it}", "content": "x", "tags": ["come"], "expiresAt": GONE} for it in range(9)
    ]
    assert suite.seed(*gone, ref=host.ref) == len(gone)
    waits = {
        name: host.put(name, id=name, tags=tags)["id"]
        for name, tags in {
            "only": ["when:come"],
            "both": ["when:come", "come", "when:other"],  # which fires what waited before it
            "late": ["when:come", "when:come too"],
        }.items()
    }

    assert _states(host, "come") == ["fired", "armed", "armed"]
    host.put("it is there", tags=["come too", "come"])
    assert _states(host, "come") == ["fired", "fired", "armed"]  # the last had one before it
    assert (_states(host, "come too"), _states(host, "other")) == (["fired"], ["armed"])
    ok(host.delete(waits["both"]))
    host.put("it is there again", tags=["come", "other"])
    assert _states(host, "come") == ["fired", "fired", "armed"]
    assert _states(host, "other") == ["cancelled"]


def at_once(*asked: Callable[[], httpx.Response]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(asked)) as pool:
        return [it.result() for it in [pool.submit(each) for each in asked]]


def _states(host: Host, tag: str) -> list[str]:
    """What has become of all that waited for a tag, in the order in which it was armed."""
    listed = Intents(host).listed(memoryRef=host.ref)
    return [it["state"] for it in listed if it.get("tag") == tag]
