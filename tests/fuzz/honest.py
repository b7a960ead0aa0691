"""What an agent would send: without it there is little in the service that could be harmed."""

import json
from collections.abc import Callable

from hypothesis import strategies as st

Place = Callable[[int, str], str]
Request = tuple[str, str, bytes]

CLOUD = "/api/v1/cloud/memory_stores"
ANTHROPIC = "/anthropic/v1/memory_stores"

words = st.lists(
    st.sampled_from(
        "apple pear café naïve 東京 getUserById snake_case 42 -- NEAR \" ' * 😀 password=hunter2"
        " AKIAIOSFODNN7EXAMPLE <private>x</private> \0 \u202e".split(" ")
    ),
    min_size=1,
    max_size=12,
).map(" ".join)
sizes = st.sampled_from([1] * 12 + [50, 400, 3000])
content = st.builds(lambda text, times: f"{text} " * times, words, sizes)
projects = st.sampled_from(["one", "two", "Two ", "drei/vier"])
numbers = st.integers(0, 40)
sessions = numbers.map(lambda number: f"session {number % 7}")
paths = numbers.map(lambda number: f"/notes/{number % 9}.md")


def honest(place: Place) -> st.SearchStrategy[Request]:
    """One request, to what there is by now."""

    def to(how: str, template: str, body: st.SearchStrategy[object]) -> st.SearchStrategy[Request]:
        return st.builds(
            lambda chosen, what: (how, place(chosen, template), _json(what)), numbers, body
        )

    return st.one_of(
        to("POST", "/observations", observation), to("POST", "/observations", observation),
        to("POST", "/sessions", st.fixed_dictionaries({"id": sessions, "project": projects})),
        to("POST", "/sessions/{id}/messages", messages),
        to("POST", "/sessions/{id}/end", messages | st.just({})),
        to("PATCH", "/observations/{id}", st.fixed_dictionaries({"content": content})),
        to("DELETE", "/observations/{id}?hard=true", st.none()),
        to("DELETE", "/observations/{id}", st.none()), to("POST", "/import", imports),
        st.builds(lambda text: ("GET", f"/context?query={text.encode().hex()}", b""), words),
        st.builds(lambda name: ("DELETE", f"/projects/{name}?hard=true", b""), projects),
        to("POST", CLOUD, st.fixed_dictionaries({"name": words})),
        to("POST", f"{CLOUD}/{{store_id}}/memories", entry),
        to("PUT", f"{CLOUD}/{{store_id}}/memories/{{entry_id}}", entry),
        to("POST", ANTHROPIC, st.fixed_dictionaries({"name": words})),
        to("POST", f"{ANTHROPIC}/{{memory_store_id}}/memories", entry),
        to("POST", f"{ANTHROPIC}/{{memory_store_id}}/memories/{{memory_id}}", entry),
        to("GET", f"{ANTHROPIC}/{{memory_store_id}}/memory_versions", st.none()),
        to("GET", f"{CLOUD}/{{store_id}}/versions", st.none()),
    )  # fmt: skip


observation = st.fixed_dictionaries(
    {"session_id": sessions, "type": words, "title": words, "content": content},
    optional={
        "project": projects,
        "tags": st.lists(words.filter(lambda tag: "\u202e" not in tag), max_size=3),
        "scope": st.sampled_from(["project", "global", "personal"]),
        "topic_key": numbers.map(lambda number: f"key/{number % 5}"),
    },
)
messages = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "assistant", "tool"]), "content": content}
            ),
            max_size=4,
        )
    }
)
entry = st.fixed_dictionaries({"path": paths, "content": content})
imports = st.fixed_dictionaries({"observations": st.lists(observation, max_size=30)})


def _json(value: object) -> bytes:
    return b"" if value is None else json.dumps(value).encode()
