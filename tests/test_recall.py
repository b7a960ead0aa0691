"""What finds a memory: words in any language, identifiers, sentences; and in which order."""

# ruff: noqa: RUF001 - signs that look like ASCII ones are what is tested

import re
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentops_memory.domain.stopwords import STOPWORDS

from .requirements import requirement
from .service import Service, serving

EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for many texts, each in a project of its own."""
    with serving(tmp_path_factory.mktemp("recall") / "memory.db") as running:
        yield running


def search(service: Service, text: str, **asked: Any) -> list[dict[str, Any]]:
    """The hits of a search."""
    answer = service.http.get("/search", params={"q": text, **asked})
    assert answer.status_code == 200, answer.text
    hits: list[dict[str, Any]] = answer.json()
    return hits


def context(service: Service, text: str, **asked: Any) -> list[str]:
    """The titles that a prompt is reminded of."""
    answer = service.http.get("/context", params={"query": text, "project": "demo", **asked})
    assert answer.status_code == 200, answer.text
    return [found["title"] for found in answer.json()["recent_observations"]]


def titles(hits: list[dict[str, Any]]) -> list[str]:
    return [hit["title"] for hit in hits]


def finds(service: Service, content: str, query: str) -> bool:
    """Whether a content is found by a query in both reads, which must agree."""
    project = f"p{next(NUMBERS)}"
    service.save(content, title="it", project=project)
    service.save("decoy " * 3, title="newer", project=project)
    searched = "it" in titles(search(service, query, project=project))
    reminded = context(service, query, project=project, limit=1) == ["it"]
    assert searched == reminded
    return searched


NUMBERS = count()

PROMPTS = {
    "Why do saves fail under load? I thought we had already fixed it.": "saves failed under load",
    "what's the connection pool's size these days": "pool size is 40",
    "Please look at the retry handler; something creates duplicate invoices!": "duplicated invoice",
    "how many workers are running on staging?": "one worker runs there",
}
IDENTIFIERS = {
    "max_connections is 40": ["max connections", "connections", "maxconnections", "MAX_CONNECTIONS",
                              "max-connections", "maxConnections", "db.max_connections"],
    "the max connections are 40": ["max_connections", "maxConnections", "max-connections"],
    "maxconnections": ["max_connections", "MaxConnections", "max.connections"],
    "a kebab-case name": ["kebab case", "kebab-case", "kebabcase", "kebab_case", "case"],
    "see a1/b2.c3 there": ["a1/b2.c3", "b2", "c3", "a1 b2 c3", "b2.c3", "a1b2c3"],
    "an HTTPServer runs": ["HTTPServer", "http server", "httpserver", "server", "http_server"],
    "the http server runs": ["HTTPServer", "http-server"],
    "getHTTPResponseCode": ["response code", "get_http_response_code", "gethttpresponsecode"],
    "id 550e8400-e29b-41d4-a716-446655440000": [
        "550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-A716-446655440000",
        "550e8400", "550E8400", "550e8400e29b41d4a716446655440000"],
    "since v1.2.3": ["v1.2.3", "1.2.3", "V1.2.3", "release/v1.2.3"],
    "since 1.2.3": ["v1.2.3", "1.2.3"],
    "python-3.11.4": ["3.11.4", "python 3.11", "v3.11.4"],
    "in src/agentops_memory/domain/text.py": [
        "text.py", "agentops_memory", "agentops memory", "domain/text.py", "agentopsmemory",
        "src/agentops_memory/domain/text.py", "./src/agentops_memory"],
    "C:\\Users\\ada\\notes.txt": ["notes.txt", "ada", "users ada", "C:\\Users"],
    "mail ada.lovelace@example.com": ["ada.lovelace@example.com", "lovelace", "example.com",
                                      "@lovelace", "Ada Lovelace"],
    "ORA-00942 and SQLITE_BUSY": ["ora-00942", "00942", "ORA00942", "sqlite_busy", "sqlite busy",
                                  "sqlitebusy", "SQLiteBusy"],
    "ECONNREFUSED E1234 0x80070005": ["econnrefused", "e1234", "0X80070005"],
    "std::vector<int> and user__name": ["vector", "std::vector", "user__name", "name"],
    "iPhone, URLs, C++, .env": ["iphone", "iPhone", "url", "URLs", "c++", ".env", "env"],
    "run --dry-run #todo @ada __init__.py snake_case_": [
        "--dry-run", "dryrun", "todo", "#todo", "@ada", "__init__", "init.py", "snake_case"],
    "it doesn't work with O'Brien's": ["work", "o'brien", "O’Brien", "brien"],
    "https://example.com/a-b/c?x=1#top": ["example.com", "a-b", "https://example.com/a-b/c", "top"],
    "at 2030-01-01T12:00:00Z": ["2030-01-01", "2030"],
    "GitHub and PostgreSQL": ["github", "Github", "postgresql", "PostgreSQL", "git hub"],
}  # fmt: skip
LANGUAGES = {
    "数据库连接池耗尽导致请求超时": [
        "连接池",
        "数据库",
        "池",
        "数",
        "时",
        "请求超时。",
        "连接池耗尽了吗",
    ],
    "用SQLite存数据": ["sqlite", "SQLite", "数据", "用sqlite存"],
    "ＳＱＬｉｔｅ　３．４０": ["sqlite", "3.40"],
    "ﾃﾞｰﾀﾍﾞｰｽ": ["データベース", "データ", "ﾃﾞｰﾀ"],
    "データベースの接続が切れた": ["データベース", "接続", "切れた", "ﾃﾞｰﾀﾍﾞｰｽ"],
    "人々は〇を描く": ["人々", "〇"],
    "데이터베이스를 옮겼다": ["데이터베이스", "데이터", "옮겼다", "옮"],
    "ฐานข้อมูลล่มเมื่อคืน": ["ฐานข้อมูล", "ล่ม", "ฐานข้อมูลล่มเมื่อคืน"],
    "ຖານຂໍ້ມູນ": ["ຂໍ້ມູນ"],
    "ဒေတာဘေ့စ်": ["ဒေတာ"],
    "មូលដ្ឋានទិន្នន័យ": ["ទិន្នន័យ"],
    "डेटाबेस कनेक्शन टूट गया": ["डेटाबेस", "कनेक्शन"],
    "قاعدة البَيَانات مُعَطَّلة": ["البيانات", "معطلة", "قاعدة", "قـــاعدة"],
    "بِسْمِ ﷲ": ["الله", "بسم"],
    "שָׁלוֹם עולם": ["שלום", "עולם"],
    "Café déjà vu, naïve Ångström": ["cafe", "DÉJÀ", "deja", "cafe\u0301", "naive", "angstrom"],
    "Tiếng Việt rất hay": ["tieng viet", "Việt", "hay"],
    "Straße nach Gießen": ["strasse", "STRASSE", "straße", "gießen", "giessen"],
    "Связь с базой данных": ["СВЯЗЬ", "базой"],
    "ΣΊΣΥΦΟΣ": ["σίσυφος", "Σίσυφος"],
    "İstanbul": ["istanbul", "İSTANBUL"],
    "❤️Python⚠️danger": ["python", "danger", "❤️Python"],
    "“quoted”—dash…end": ["quoted", "dash", "end"],
    "co\u00adoperate zero\u200bwidth": ["cooperate", "zero", "width"],
    "x²+y² №5 ﬁne": ["x2", "no5", "fine"],
}
NOT_FOUND = {
    "max_connections": ["min", "onnection"],
    "数据库": ["据数", "池"],
    "कि": ["की"],
    "กา": ["กี"],
    "concatenate": ["cat"],
    "words": ["", "?", "…", "❤️", "\u0301"],
}


@requirement("agentops:context:query", "agentops:fault:long-prompts")
@pytest.mark.parametrize(("prompt", "content"), PROMPTS.items())
def test_a_question_finds_what_it_is_about(shared: Service, prompt: str, content: str) -> None:
    assert finds(shared, content, prompt)


@requirement("agentops:context:query")
@pytest.mark.parametrize("content", [*IDENTIFIERS, *LANGUAGES])
def test_a_text_is_found_by_its_parts_and_as_a_whole(shared: Service, content: str) -> None:
    queries = [content, *(IDENTIFIERS | LANGUAGES)[content]]

    assert [query for query in queries if not finds(shared, content, query)] == []


@pytest.mark.parametrize("content", NOT_FOUND)
def test_a_text_is_not_found_by_what_is_not_in_it(shared: Service, content: str) -> None:
    assert [query for query in NOT_FOUND[content] if finds(shared, content, query)] == []


def test_every_way_to_write_an_identifier_counts_as_all_of_it(service: Service) -> None:
    service.save("maxconnections at the limit", title="joined")
    service.save("max_connections at the limit", title="compound")
    service.save("max limit limit limit", title="part")

    for query in ("max_connections limit", "maxConnections limit", "max-connections limit"):
        assert set(titles(search(service, query))[:2]) == {"joined", "compound"}


@requirement("agentops:search:hits")
def test_search_takes_all_terms_first_and_then_any(service: Service) -> None:
    service.save("apple apple apple", title="often")
    service.save("apple and a long text about other things, and banana at its end", title="both")
    service.save("banana", title="one")

    assert titles(search(service, "apple banana"))[0] == "both"
    assert set(titles(search(service, "apple banana"))) == {"both", "often", "one"}
    assert titles(search(service, "apple banana", limit=1)) == ["both"]


def test_stop_words_count_only_where_nothing_else_is_asked(service: Service) -> None:
    service.save("to be or not to be", title="hamlet")
    service.save("the pool", title="pool")

    assert titles(search(service, "what is the pool?")) == ["pool"]
    assert titles(search(service, "to be or not")) == ["hamlet"]
    assert context(service, "is the THE pool not to be?", limit=1) == ["pool"]


def test_only_the_first_500_code_points_of_a_prompt_count(service: Service) -> None:
    service.save("zebra", title="it")

    assert titles(search(service, "😀" * 495 + "zebra")) == ["it"]
    assert titles(search(service, "😀" * 496 + "zebra")) == []


@requirement("agentops:search:hits")
def test_a_rank_is_the_best_sentence_and_two_fifths_of_the_others(service: Service) -> None:
    service.save("apple and the rest", title="one")
    service.save("apple with banana", title="two")
    service.save("banana with cherry", title="three")
    ranks: dict[str, dict[str, float]] = {
        word: {hit["title"]: hit["rank"] for hit in search(service, word)}
        for word in ("apple", "banana")
    }
    found = {hit["title"]: hit["rank"] for hit in search(service, "Apple none. Banana here?")}

    best, other = sorted(ranks[word]["two"] for word in ranks)
    assert found == pytest.approx(
        {
            "one": ranks["apple"]["one"],
            "two": best + 0.4 * other,
            "three": ranks["banana"]["three"],
        }
    )


def test_each_sentence_contributes_its_best_ten_alone(service: Service) -> None:
    for number in range(10):
        service.save(f"apple {number}", title="apple")
    service.save("banana, and among many other words one apple at last", title="both")
    for number in range(30):
        service.save(f"other {number}", title="other")
    (alone,) = search(service, "banana")
    few = {hit["title"]: hit["rank"] for hit in search(service, "apple none. banana here", limit=5)}
    all_ = {
        hit["title"]: hit["rank"] for hit in search(service, "apple none. banana here", limit=40)
    }

    assert few["both"] == pytest.approx(alone["rank"])
    assert all_["both"] < alone["rank"]


@requirement("agentops:search:hits")
def test_equal_scores_are_in_the_order_of_their_ids(service: Service) -> None:
    ids = [service.save("the same words", title="same", session_id=f"s{n}", type=f"t{n}")["id"]
           for n in range(9)]  # fmt: skip

    hits = search(service, "same words")
    assert [hit["id"] for hit in hits] == ids
    assert len({hit["rank"] for hit in hits}) == 1
    assert [hit["id"] for hit in search(service, "same. words", limit=4)] == ids[:4]


def test_the_title_weighs_twice_the_content(service: Service) -> None:
    service.save("pool and something", title="another thing")
    service.save("another thing", title="pool and something")

    assert titles(search(service, "pool")) == ["pool and something", "another thing"]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    texts = [*PROMPTS.values(), *IDENTIFIERS, *LANGUAGES, *PROMPTS]
    asked = [*PROMPTS, *IDENTIFIERS, "pool. size! 数据库 limit", "a/b", "the"]

    def answers(service: Service) -> list[bytes]:
        reads = [("/search", "q"), ("/context", "query")]
        return [
            service.http.get(path, params={name: text, "project": "demo"}).content
            for text in asked
            for path, name in reads
        ]

    def fed(path: Path) -> list[bytes]:
        with serving(path) as service:
            for text in texts:
                service.save(text)
            return answers(service)

    first = fed(tmp_path / "first.db")
    with serving(tmp_path / "first.db") as restarted:
        assert answers(restarted) == first
    assert fed(tmp_path / "second.db") == first


@pytest.mark.parametrize("rows", [5, 700])
def test_words_are_narrowed_alike_among_few_memories_and_many(service: Service, rows: int) -> None:
    kinds = [("decision", ["t", "u"]), ("bugfix", ["u"]), ("config", [])]
    body = [
        {"session_id": "s", "project": project, "title": f"{number}", "type": kinds[number % 3][0],
         "tags": kinds[number % 3][1], "content": "word " + "x " * (number % 7), "scope": scope}
        for project, scope in (("demo", "project"), ("demo", "team"), ("other", "project"))
        for number in range(rows)
    ] + [{"session_id": "s", "project": "other", "title": "everywhere", "type": "decision",
          "tags": ["t"], "content": "word", "scope": "global"}]  # fmt: skip
    assert service.http.post("/import", json={"observations": body}).status_code == 200

    def hits_of(**asked: str) -> int:
        for text in ("word", "word none. word x"):
            hits = search(service, text, limit=1000, **asked)
            assert len(hits) == len(search(service, "word", limit=1000, **asked))
        return len(hits)

    third, most = -(-rows // 3), min(2 * rows + 1, 1000)
    assert hits_of(project="demo") == most
    assert hits_of(project="demo", scope="team") == rows
    assert hits_of(project="demo", type="decision", scope="project") == third
    assert hits_of(project="demo", tag="t", scope="project") == third
    assert hits_of(project="demo", tag="t", type="bugfix") == 0
    assert hits_of(project="demo", tag="t", type="decision") == 2 * third + 1
    assert hits_of(scope="global") == hits_of(project="none") == 1
    assert hits_of(type="config", tag="u") == 0
    assert context(service, "word", project="none", tag="t") == ["everywhere"]


character = st.characters(codec="utf-8")
syntax = st.sampled_from(
    ['"', "'", "*", "^", "(", ")", "{", "}", ":", "-", "+", ",", "NEAR(", "NEAR", " AND ", " OR ",
     " NOT ", "title:", "rank MATCH", "--", ";", "/*", "\0", "%", "_", "\\", "\n", ". ", "needle",
     "數", "❤️", "\u0301", "\u200d", "\ufffd", "\uffff", "\U0010ffff", "a" * 600, "a-" * 300]
)  # fmt: skip
query_text = st.text(character, max_size=60) | st.lists(
    syntax | st.text(character, max_size=4), max_size=12
).map("".join)


@requirement("agentops:search:hits", "agentops:fault:nul-in-query")
@EXAMPLES
@given(text=query_text)
def test_no_text_at_all_is_refused_as_a_query(shared: Service, text: str) -> None:
    hits = search(shared, text)
    context(shared, text)

    assert all(before["rank"] <= after["rank"] for before, after in pairwise(hits))
    assert all(hit["rank"] < 0 for hit in hits)


@pytest.mark.parametrize("text", ["word ", '"', "* ", "(", "a/b.c-d_", "aB", "NEAR(a,", "1.2."])
def test_ten_kilobytes_are_no_error(shared: Service, text: str) -> None:
    long = (text * 10_000)[:10_000]

    assert len(search(shared, long)) <= 10
    context(shared, long)


letter = st.characters(categories=("L", "N"))
mark = st.characters(categories=("Mn", "Mc"))
word = st.lists(
    st.builds(lambda base, marks: base + marks, letter, st.text(mark, max_size=1))
    | st.sampled_from(["ab", "Ab", "AB", "max", "v1", "数据", "ก่อน", "데이", "é"]),
    min_size=1,
    max_size=6,
).map("".join)
separator = st.sampled_from(
    [" ", "_", "-", ".", "/", ":", "@", "\\", ". ", "\n", "'", "’", "—", "。", "❤️", "\u200b", "::"]
)


@EXAMPLES
@given(words=st.lists(word, min_size=1, max_size=5), data=st.data())
def test_a_text_finds_itself_by_each_of_its_words(
    shared: Service, words: list[str], data: st.DataObject
) -> None:
    text = "".join(part for word in words for part in (word, data.draw(separator)))
    project = f"p{next(NUMBERS)}"
    shared.save(text, title="it", project=project)
    asked = [word for word in words if not set(re.findall(r"\w+", word.casefold())) & STOPWORDS]

    lost = [word for word in asked if not search(shared, word, project=project)]
    assert lost == []
