"""What is wrong with a field of a body or a parameter is named, not quoted, and nothing is done."""

from ..secrets.test_redaction import GITHUB
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import REF, Host, Json, faults, ok
from ..support.openwop_proposals import PACK
from ..support.openwop_tenants import NEVER
from ..support.requirements import requirement
from .test_openwop_failures import everything

NO_NUMBERS = ["-1", "x", "1.5", "1e2", "+5", " 5", "\u0665", "true", "9" * 30 + "x"]
NO_ENDS = [
    "2030-01-01T12:00:00Z", "2030-01-01T12:00:00.0009Z", "2029-12-31T23:59:59Z", "2031-01-01",
    "2031-01-01T12:00:00", "2031-02-30T12:00:00Z", "10000-01-01T00:00:00Z", "tomorrow", "",
    1_900_000_000, True,
]  # fmt: skip
NO_CONDITIONS = [
    "due:", "due:tomorrow", "due:2030-01-01", "due:2030-01-02T00:00:00", "when:",
    "due:2030-13-01T00:00:00Z", "due:2030-01-01T12:00:00Z", "due:2030-01-01T12:00:00.000999Z",
    "due:1999-01-01T00:00:00Z", "due: 2031-01-01T00:00:00Z", "due:2030-W05-1T00:00:00Z",
    "due:2030-01-02T00:00:00 01:00",
]  # fmt: skip
NO_REFS = ["x" * 257, "", "a\x01b", "..", "a/../b", "..\\a", f"mem://{GITHUB}", 7, [REF], None]
NO_CONTENTS = ["", " \n\t\u2003", 7, ["a"], "x" * 65_537, "\u00e9" * 32_769]
LARGEST = 262_144

# Bodies that are taken, by path, and what each of their fields may not be.
BODIES: dict[str, tuple[Json, dict[str, list[object]]]] = {
    "/memory": ({"memoryRef": REF, "content": "x"}, {
        "memoryRef": NO_REFS, "content": [None, *NO_CONTENTS], "expiresAt": [*NO_ENDS],
        "tags": [
            [f"t{number}" for number in range(51)], ["t" * 257], "a", ["a", 7], {"a": "b"},
            ["a", "archive"], ["distilled"], ["compacted-from:r1"], ["compacted-from:"],
            *(["a", it] for it in NO_CONDITIONS),
        ],
        "ttlSeconds": [0, -1, 315_360_001, 1.5, "60", True, [60]],
        "id": ["", "i" * 257, "a\nb", 7, f"mem_{'0a' * 16}", f"archive_{'0a' * 16}", GITHUB],
        "supersedes": ["a", [f"a{number}" for number in range(21)], [7]],
        "nodeId": ["n1"], "agentId": ["ada"],  # of no run
    }),
    "/runs": ({"runId": "r2"}, {
        "runId": ["", "r" * 129, "a/b", "a\x85b", 7, GITHUB], "agentId": ["ab", GITHUB],
        "workflowId": [7, GITHUB],
        "memoryRefs": [
            "mem://a", [f"mem://{it}" for it in range(33)], ["a", "../b"], [f"mem://{GITHUB}"]
        ],
    }),
    "/runs/r1/secrets": ({"secretId": "s", "value": "correct-horse"}, {
        "secretId": ["", None, 7], "value": [None, 12345678901],
    }),
    "/runs/r1/fork": ({"mode": "branch", "fromSeq": 0}, {
        "mode": [None, "", "rerun", 7], "fromSeq": [-1, None, "x", "1", 1.5, True, [0]],
    }),
    "/commitments": ({"memoryRef": REF, "memoryId": "plan", "condition": "time",
                      "dueAt": "2030-01-02T00:00:00Z"}, {
        "memoryRef": ["a/../b", GITHUB], "memoryId": [None, 1], "condition": [None, "x"],
        "dueAt": [None, *NO_ENDS[:5], "tomorrow"], "tag": ["rain", "x" * 257],
    }),
    "/compact": ({"memoryRef": REF}, {
        "memoryRef": NO_REFS, "content": NO_CONTENTS, "keepSources": ["no"],
    }),
    "/distill": ({"memoryRef": REF}, {
        "memoryRef": NO_REFS, "content": NO_CONTENTS, "expiresAt": ["soon", *NO_ENDS],
        "tokenBudget": [0, -1, 1.5, "500", True, [500]], "recursive": ["true", 1, []],
    }),
    "/consolidate": ({"memoryRef": REF}, {"memoryRef": NO_REFS, "merges": ["x", 7, [{}]]}),
    "/forget": ({"subject": "ada"}, {
        "subject": ["", "x" * 257, 7, None], "dryRun": [7, "yes"],
    }),
    "/proposals": ({"kind": "agent-pack", "artifact": PACK, "provenance": {"sourceRunIds": []}}, {
        "kind": ["rule", None, "Agent-Pack"], "title": ["t" * 257, 7, "a\x00"],
        "artifact": [
            None, [], "{}", {"a": "x" * LARGEST}, {"a": "\x00"}, {"a": ["x", {"b\x00": 1}]}
        ],
        "rationale": ["r" * 10_001],
        "provenance": [
            None, [], {}, {"sourceRunIds": None}, {"sourceRunIds": ["r"] * 101},
            {"sourceRunIds": ["r", "a/b"]}, {"sourceRunIds": [7]}, {"sourceRunIds": ["x" * 129]},
            {"sourceRunIds": [""]}, {"sourceRunIds": [], "synthesizerModel": "m" * 257},
        ],
    }),
}  # fmt: skip

PARAMETERS: dict[str, dict[str, list[str]]] = {
    "/memory": {
        "limit": NO_NUMBERS, "tokenBudget": ["0", *NO_NUMBERS], "query": ["apple"],
        "rank": ["relevance", "Recency", "x"], "tag": ["t" * 257], "before": [NEVER, "nothing"],
    },
    "/search": {"limit": NO_NUMBERS, "tokenBudget": ["0", *NO_NUMBERS], "tag": ["t" * 257]},
    "/refs": {"limit": NO_NUMBERS},
    "/runs/r1/events": {"limit": NO_NUMBERS, "after": ["x"]},
    "/events": {"limit": NO_NUMBERS, "after": ["no cursor"]},
    "/commitments": {"limit": NO_NUMBERS, "state": ["gone"], "after": ["cmt_1"]},
    "/proposals": {"limit": NO_NUMBERS, "state": ["gone"], "kind": ["rule"]},
    "/artifacts": {"limit": NO_NUMBERS, "after": ["x", "installed:", "installed:automation::0"]},
}  # fmt: skip


def named(host: Host, path: str, body: Json) -> set[str]:
    """The fields that a refusal names; it quotes no secret, and is short."""
    answer = host.ask("POST", path, body)
    assert GITHUB not in answer.text
    assert len(answer.content) < 3000
    return {field.split("[")[0].split(".")[0] for field in faults(answer)}


@requirement("OW-12", "OW-14", "OW-24", "OW-40", "OW-46", "OW-54", "OW-63", "OW-70", "OW-72")
def test_each_field_at_fault_is_named_and_nothing_is_done(host: Host) -> None:
    host.put("one", id="plan")
    host.in_run("r1").put("two")
    before = everything(host)
    for path, (body, wrongs) in BODIES.items():
        for field, values in wrongs.items():
            for value in values:
                assert named(host, path, body | {field: value}) == {field}, (path, field, value)
        every = {field: values[0] for field, values in wrongs.items()}
        if path not in ("/memory", "/commitments"):  # where one says what the other may be
            assert named(host, path, body | every) == {*wrongs}, path
    of_entry = {"content": " ", "tags": ["a", 7], "id": "", "ttlSeconds": 0, "supersedes": [7]}
    assert named(host, "/memory", of_entry | {"memoryRef": "a/.."}) == {*of_entry, "memoryRef"}
    assert everything(host) == before

    draft = ok(host.ask("POST", "/proposals", BODIES["/proposals"][0]), 201)["id"]
    for field in ("title", "rationale", "artifact"):
        for value in filter(None, BODIES["/proposals"][1][field]):
            answer = host.ask("PATCH", f"/proposals/{draft}", {field: value})
            assert {it.partition(".")[0] for it in faults(answer)} == {field}, value


@requirement("OW-12", "OW-18", "OW-20", "OW-49", "OW-50")
def test_each_parameter_at_fault_is_named(host: Host) -> None:
    host.in_run("r1")
    host.put("apple")
    for path, wrongs in PARAMETERS.items():
        params = {"memoryRef": REF, "q": "apple"} if path in ("/memory", "/search") else {}
        for name, values in wrongs.items():
            for value in values:
                answer = host.ask("GET", path, params={**params, name: value})
                assert faults(answer) == [name], (path, name, value)
            unset = {} if name in ("before", "after") else {name: ""}
            assert ok(host.ask("GET", path, params={**params, **unset})), (path, name)
    wrong = {"limit": "x", "tokenBudget": "x", "rank": "x", "tag": "t" * 257}
    assert {*faults(host.ask("GET", "/memory", params=wrong))} == {*wrong}
    several = [("memoryRef", REF), ("memoryRef", "other"), ("limit", "1"), ("limit", "x")]
    assert len(ok(host.ask("GET", "/memory", params=several))["entries"]) == 1  # the first counts


@requirement("OW-84", "OW-85", "OW-12")
def test_a_commitment_waits_for_a_time_or_for_a_tag(host: Host) -> None:
    memory, intents = host.put("one")["id"], Intents(host)
    tag: Json = {"memoryId": memory, "condition": "predicate", "tag": "rain"}
    for wrong, field in (
        ({"tag": ""}, "tag"), ({"tag": None}, "tag"), ({"dueAt": "2030-01-02T00:00:00Z"}, "dueAt"),
    ):  # fmt: skip
        assert faults(intents.post(**tag | wrong)) == [field]
    ok(intents.post(**tag, more=1, dueAt=None, state="fired"), 201)
    assert intents.states() == ["armed"]
