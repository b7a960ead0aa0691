"""Proposals of odd content: at their bounds, beyond them, and with secrets in every place."""

import json
from pathlib import Path

import httpx
import pytest

from ..support.erasing import remains
from ..support.openwop_hosts import H, Host, Json, faults, ok, refused
from ..support.openwop_proposals import (
    applied,
    artifact,
    handed_in,
    listed,
    moved,
    proposed,
    revised,
)
from ..support.openwop_tenants import SECRET
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

VALUE = "Xylographer.77"
MOST = 262_144
SIGNS = ("x", "\u00e9", "\u4f1a", "\U0001f332")
START, END = '{"kind":"agent-pack","provenance":{"sourceRunIds":[]},"artifact":', "}"


def sent(service: Service, artifact: str) -> httpx.Response:
    """The answer to a proposal whose artifact is sent as it stands."""
    return service.http.post(f"{H}/proposals", content=(START + artifact + END).encode())


@for_each(
    "artifact, kept",
    [
        ('{"b":1,"a":2,"b":3}', '{"b":3,"a":2}'),  # the last of equal names counts
        ('{ "a" : [ 1 , 2 ] }', '{"a":[1,2]}'),
        ('{"a":null,"":{"":[]}}', '{"a":null,"":{"":[]}}'),
        ('{"n":12345678901234567890,"m":-0,"f":1e5,"g":0.1}',
         '{"n":12345678901234567890,"m":0,"f":100000.0,"g":0.1}'),
        ('{"s":"\\u00e9\\ud83c\\udf32\\u2028\\\\u0000"}',
         '{"s":"\u00e9\U0001f332\u2028\\\\u0000"}'),
        ('{"s":"\\u0001\\n\\"/"}', '{"s":"\\u0001\\n\\"/"}'),
        ('{"__proto__":{"a":1},"constructor":true}', '{"__proto__":{"a":1},"constructor":true}'),
        ('{"a":' + "[" * 97 + "1" + "]" * 97 + "}", '{"a":' + "[" * 97 + "1" + "]" * 97 + "}"),
    ],
)  # fmt: skip
@requirement("OW-89", "OW-11")
def test_json_is_kept_as_it_was_read(
    service: Service, host: Host, artifact: str, kept: str
) -> None:
    made = ok(sent(service, artifact), 201)

    answer = host.ask("GET", f"/proposals/{made['id']}")
    assert f'"artifact":{kept},"provenance"' in answer.text
    assert json.loads(answer.text) == made
    assert f'"artifact":{kept},"provenance"' in host.ask("GET", "/proposals").text


@for_each(
    "artifact",
    [
        '{"a":NaN}', '{"a":Infinity}', '{"a":1e400}', '{"a":-1e400}', '{"a":123456789012345678901}',
        '{"a":"\\ud800"}', '{"\\udfff":1}', '{"a":"\\u0000"}', '{"a\\u0000":1}', "{", "[", '{"a"}',
        '{"a":' + "[" * 100 + "]" * 100 + "}", '{"a":' * 9999 + "1" + "}" * 9999,
        '{"a":' * 50_000,
    ],
)  # fmt: skip
@requirement("OW-11", "OW-14")
def test_what_is_no_exact_json_is_refused(service: Service, host: Host, artifact: str) -> None:
    answer = sent(service, artifact)

    assert refused(answer) == (400, "validation_error")
    assert listed(host) == []


@pytest.mark.slow
@for_each("sign", SIGNS)
@requirement("OW-89")
def test_an_artifact_has_262144_bytes(host: Host, sign: str) -> None:
    room = MOST - len('{"name":"","version":"1"}')
    name = sign * (room // len(sign.encode())) + "x" * (room % len(sign.encode()))

    made = proposed(host, {"name": name, "version": "1"})
    ref = applied(host, made["id"])

    assert len(artifact(host, ref).content) == MOST
    assert ok(artifact(host, ref))["name"] == name
    assert faults(handed_in(host, {"name": name + "x", "version": "1"})) == ["artifact"]


@pytest.mark.slow
@requirement("OW-21", "OW-12")
def test_an_answer_stays_under_2_mib_and_says_where_to_go_on(host: Host) -> None:
    made = [
        proposed(host, {"a": f"{n}" + "\x01" * 43_000}, rationale="\x01" * 10_000, title="t" * 256,
                 provenance={"sourceRunIds": ["\U0001f332" * 127 + "r"] * 100})["id"]
        for n in range(12)
    ]  # fmt: skip
    found, query = [], {"limit": 1000}
    while True:
        answer = host.ask("GET", "/proposals", params=query)
        assert len(answer.content) <= 2 * 1024 * 1024
        found += [it["id"] for it in answer.json()["proposals"]]
        if "next" not in answer.json():
            break
        query["after"] = answer.json()["next"]
    assert found == made


@requirement("OW-37", "OW-40", "OW-41")
def test_secrets_leave_every_text_of_a_proposal(host: Host, tmp_path: Path) -> None:
    run = host.in_run("r1")
    run.register("db", VALUE)
    given = {
        "name": f"a {VALUE}", "version": "[BYOK:x]", VALUE: {f"of {VALUE}": [[SECRET], VALUE]},
        "<REDACTED:k>": True, f"x{VALUE}": 1, "password": "Zq7xy9lograph2", "n": 7,
        "escaped": f'"\\{VALUE}\n',
    }  # fmt: skip
    answer = handed_in(host, given, title=f"t {VALUE}", rationale=f"[BYOK:k] {VALUE}")

    made = ok(answer, 201)
    assert made["artifact"] == {
        "name": "a [REDACTED:db]", "version": "[REDACTED:byok]",
        "[REDACTED:db]": {"of [REDACTED:db]": [["[REDACTED:openai-key]"], "[REDACTED:db]"]},
        "[REDACTED:k]": True, "x[REDACTED:db]": 1, "password": "[REDACTED:password]", "n": 7,
        "escaped": '"\\[REDACTED:db]\n',
    }  # fmt: skip
    assert (made["title"], made["rationale"]) == (
        "t [REDACTED:db]",
        "[REDACTED:byok] [REDACTED:db]",
    )
    assert int(answer.headers["x-redacted"]) == 13
    after = revised(host, made["id"], title=VALUE, artifact={VALUE: 1, f"{VALUE}": 2, "k": VALUE})
    assert ok(after)["artifact"] == {"[REDACTED:db]": 2, "k": "[REDACTED:db]"}
    assert ok(after)["title"] == "[REDACTED:db]"
    assert not remains(tmp_path, VALUE, "Zq7xy")


@requirement("OW-37")
def test_names_that_are_the_same_without_their_secrets_are_both_kept(host: Host) -> None:
    run = host.in_run("r1")
    run.register("db", VALUE)
    run.register("db", f"{VALUE}.old")

    made = proposed(host, {VALUE: 1, f"{VALUE}.old": 2, "[REDACTED:db] (2)": 3})

    assert made["artifact"] == {
        "[REDACTED:db]": 1, "[REDACTED:db] (2)": 2, "[REDACTED:db] (2) (2)": 3,
    }  # fmt: skip


@requirement("OW-37", "OW-14")
def test_a_name_with_a_secret_is_refused_and_not_told(host: Host) -> None:
    host.in_run("r1").register("db", VALUE)

    answer = handed_in(
        host, provenance={"sourceRunIds": ["r", VALUE], "synthesizerModel": f"m {VALUE}"}
    )

    assert faults(answer) == ["provenance.sourceRunIds[1]", "provenance.synthesizerModel"]
    assert VALUE not in answer.text
    assert listed(host) == []


@pytest.mark.slow
@requirement("OW-37")
def test_an_artifact_that_is_too_long_without_its_secrets_is_refused(host: Host) -> None:
    host.in_run("r1").register("i" * 64, "12345678")
    made = proposed(host)
    long = {"a": "12345678 " * 3_600}

    assert faults(handed_in(host, long)) == faults(revised(host, made["id"], artifact=long)) == [
        "artifact"
    ]  # fmt: skip
    title = proposed(host, title="12345678" * 32, rationale="12345678 " * 1_111)
    assert (len(title["title"]), len(title["rationale"])) == (256, 10_000)


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


@requirement("OW-41", "OW-89")
@for_each("secret, clean", ALONE)
def test_a_secret_that_stands_alone_in_a_string_leaves_an_artifact(
    host: Host, secret: str, clean: str
) -> None:
    given = {"workflowId": "w", "note": secret, "steps": ["x", secret, {"then": [secret]}]}
    stored = {"workflowId": "w", "note": clean, "steps": ["x", clean, {"then": [clean]}]}

    made = proposed(host, given, kind="automation", title=secret)
    assert made["title"] == clean
    assert made["artifact"] == stored
    assert ok(revised(host, made["id"], artifact={secret: 1, **given}))["artifact"] == {
        clean: 1, **stored,
    }  # fmt: skip
    ref = ok(moved(host, made["id"], "apply"))["installedArtifactRef"]
    assert secret not in artifact(host, ref).text


@requirement("OW-41", "OW-89")
@for_each("given, stored", TOGETHER)
def test_a_secret_that_several_strings_tell_leaves_an_artifact(
    host: Host, given: Json, stored: Json
) -> None:
    made = proposed(host, given)

    assert made["artifact"] == stored
    assert ok(revised(host, made["id"], artifact=stored))["artifact"] == stored
