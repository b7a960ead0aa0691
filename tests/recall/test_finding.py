"""What finds a memory: words in any language, identifiers, whatever is typed."""

# ruff: noqa: RUF001 - signs that look like ASCII ones are what is tested

import re
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from agentops_memory.memory import memories, sessions, table
from agentops_memory.recall.query import STOPWORDS

from ..support.files import imported
from ..support.recall import context, search, titles
from ..support.requirements import requirement
from ..support.samples import examples, for_each
from ..support.service import Service, lasting as shared, observation, serving

__all__ = ["shared"]

EXAMPLES = examples(60)


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
    "see a1/b2.c3 there": ["a1/b2.c3", "b2", "c3", "a1 b2 c3", "b2.c3", "a1b2c3"],
    "an HTTPServer runs": ["HTTPServer", "http server", "httpserver", "server", "http_server"],
    "the http server runs": ["HTTPServer", "http-server"],
    "getHTTPResponseCode": ["response code", "get_http_response_code", "gethttpresponsecode"],
    "since v1.2.3": ["v1.2.3", "1.2.3", "V1.2.3", "release/v1.2.3"],
    "in src/agentops_memory/domain/text.py": [
        "text.py", "agentops_memory", "agentops memory", "domain/text.py", "agentopsmemory",
        "src/agentops_memory/domain/text.py", "./src/agentops_memory"],
    "C:\\Users\\ada\\notes.txt": ["notes.txt", "ada", "users ada", "C:\\Users"],
    "mail ada.lovelace@example.com": ["ada.lovelace@example.com", "lovelace", "example.com",
                                      "@lovelace", "Ada Lovelace"],
    "ORA-00942 and SQLITE_BUSY": ["ora-00942", "00942", "ORA00942", "sqlite_busy", "sqlite busy",
                                  "sqlitebusy", "SQLiteBusy"],
    "iPhone, URLs, C++, .env": ["iphone", "iPhone", "url", "URLs", "c++", ".env", "env"],
    "run --dry-run #todo @ada __init__.py snake_case_": [
        "--dry-run", "dryrun", "todo", "#todo", "@ada", "__init__", "init.py", "snake_case"],
    "it doesn't work with O'Brien's": ["work", "o'brien", "O’Brien", "brien"],
    "needle AND hay NEAR col": ["needle\0hay", "title:needle", "needle*", '"needle', "NEAR(needle"],
    "GitHub and PostgreSQL": ["github", "Github", "postgresql", "PostgreSQL", "git hub"],
}  # fmt: skip
LANGUAGES = {
    "数据库连接池耗尽导致请求超时": [
        "连接池", "数据库", "池", "数", "时", "请求超时。", "连接池耗尽了吗",
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
}  # fmt: skip
NOT_FOUND = {
    "max_connections": ["min", "onnection"], "数据库": ["据数", "池"], "कि": ["की"], "กา": ["กี"],
    "concatenate": ["cat"], "words": ["", "?", "…", "❤️", "\u0301"],
}  # fmt: skip


@requirement("agentops:context:query", "agentops:fault:long-prompts")
@pytest.mark.parametrize(("prompt", "content"), PROMPTS.items())
def test_a_question_finds_what_it_is_about(shared: Service, prompt: str, content: str) -> None:
    assert finds(shared, content, prompt)


@pytest.mark.slow
@requirement("agentops:context:query")
def test_a_text_is_found_by_its_parts_and_as_a_whole(shared: Service) -> None:
    texts = [*(IDENTIFIERS | LANGUAGES).items()]
    rows = [observation(it, title="it", project=f"t{at}") for at, (it, _) in enumerate(texts)]
    imported(shared, rows)

    lost = [
        (content, query)
        for at, (content, queries) in enumerate(texts)
        for query in (content, *queries)
        if not search(shared, query, project=f"t{at}")
    ]
    assert lost == []


@for_each("content", NOT_FOUND)
def test_a_text_is_not_found_by_what_is_not_in_it(shared: Service, content: str) -> None:
    assert [query for query in NOT_FOUND[content] if finds(shared, content, query)] == []


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


@for_each("text", ["word ", '"', "* ", "(", "a/b.c-d_", "aB", "NEAR(a,", "1.2."])
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


@pytest.mark.slow
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


def test_a_long_list_reads_no_more_texts_than_it_shows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(path) as service:
        for number in range(7):
            service.save(f"apple {number}", session_id=f"s{number}")
        rows = [
            {"id": f"t{number}", "project": "demo", "summary": "eight..."} for number in range(7)
        ]
        service.http.post("/import", json={"sessions": rows}).raise_for_status()
        asked = "/search?q=apple&limit=1000", "/observations/recent?limit=1000"
        whole = [service.http.get(it).json() for it in asked]
        monkeypatch.setattr(memories, "AT_ONCE", 2)

        assert [service.http.get(it).json() for it in asked] == whole

        monkeypatch.setattr(memories, "MAX_LIST", 20)
        monkeypatch.setattr(sessions, "MAX_LIST", 20)
        monkeypatch.setattr(table, "MAX_PAGE", 20)
        read = [len(service.http.get(it).json()) for it in (*asked, "/sessions/recent?limit=1000")]
        assert read == [3, 3, 3]
        assert len(service.http.get("/export").json()["sessions"]) == 14
