"""What recall finds in judged questions of our own: no figure changes unseen."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from benchmarks.recall.asking import answers, load
from benchmarks.recall.company import ALONE, TOGETHER, Company, alone, services, strangers
from benchmarks.recall.judged import Document, Judged, Query, judged
from benchmarks.recall.metrics import (
    NO_HIT,
    Asked,
    Budget,
    Packed,
    figures,
    figures_by_kind,
    gain,
    kept_in,
    ndcg,
    recall,
    recall_in,
    reciprocal_rank,
    tokens_in,
)
from benchmarks.recall.typos import mistyped, with_typos

from agentops_memory.recall.features import Feature

from ..support.samples import sampled
from ..support.service import serving

SET = Path(__file__).parents[1] / "data" / "recall"
TOLERANCE = 0.0005
WRITE = "If this is wanted, write it down: python -m benchmarks.recall --write-figures"

Groups = Mapping[str, Mapping[str, float]]
OWN = judged(str(SET))


def asked(path: Path, of: Judged, without: str = "", budgets: Sequence[Budget] = ()) -> list[Asked]:
    """The answers of a service that holds a set."""
    with serving(path, MEMORY_RECALL_WITHOUT=without) as service:
        port = urlsplit(service.url).port
        assert port is not None
        load(port, of)
        return answers(port, of, budgets)


def written(name: str) -> Groups:
    """The figures to compare with, of the set in one service or of each project alone."""
    groups: Groups = json.loads((SET / "figures.json").read_text("utf-8"))[name]
    return groups


def document(
    id_: str, *, project: str = "p", text: str = "x", scope: str | None = None
) -> Document:
    return Document(id=id_, project=project, session="s", title=id_, text=text, scope=scope)


def changes(then: Groups, now: Groups) -> dict[str, list[str]]:
    """What is worse and what is better, figure by figure."""
    found: dict[str, list[str]] = {"worse": [], "better": []}
    for kind, of_kind in then.items():
        for name, before in of_kind.items():
            after = now[kind][name]
            if abs(after - before) > TOLERANCE:
                verdict = "better" if gain(name, before, after) > 0 else "worse"
                found[verdict].append(f"{kind}: {name} {before:.3f} -> {after:.3f}")
    return found


@pytest.mark.parametrize("name", [TOGETHER, pytest.param(ALONE, marks=pytest.mark.slow)])
def test_recall_finds_what_it_found_before(tmp_path: Path, name: str) -> None:
    sets = services(OWN, is_alone=name == ALONE)

    found = [asked(tmp_path / f"{number}.db", of) for number, of in enumerate(sets)]

    then, now = written(name), figures_by_kind(list(chain(*found)))
    assert now.keys() == then.keys(), WRITE
    assert changes(then, now) == {"worse": [], "better": []}, WRITE


@pytest.mark.parametrize("others", sampled([4, 400], 2, kept=[pytest.mark.slow]))
def test_a_project_finds_as_much_alone_as_beside_others(tmp_path: Path, others: int) -> None:
    sets = services(OWN, Company(strangers=others), is_alone=True)

    found = [asked(tmp_path / f"{number}.db", of) for number, of in enumerate(sets)]

    now, then = figures(list(chain(*found))), written(ALONE)["all"]
    assert abs(now["context recall@5"] - then["context recall@5"]) <= 0.01


@pytest.mark.slow
def test_the_figures_see_that_a_technique_is_off(path: Path) -> None:
    without = figures_by_kind(asked(path, OWN, Feature.STOPWORDS))

    assert changes(written(TOGETHER), without)["worse"] != []


def test_a_budget_is_asked_for_and_its_tokens_are_counted(path: Path) -> None:
    ids = ("a", "b")
    of = Judged(
        name="two",
        documents=tuple(document(it, text="The queue is full.") for it in ids),
        queries=(Query(project="p", text="queue", relevant=frozenset(ids)),),
    )

    (one,) = asked(path, of, budgets=(15, None))

    within, whole = one.packed
    assert (within.tokens, whole.tokens) == (8, 16)  # each line has 29 bytes
    assert within.ranking == whole.ranking[:1] == one.context[:1]
    assert whole.ranking == one.context


def test_a_lone_project_has_its_own_documents_and_the_global_ones() -> None:
    of = Judged(
        name="two",
        documents=(
            document("a", project="p"),
            document("b", project="q"),
            document("c", project="q", scope="global"),
        ),
        queries=tuple(
            Query(project=it, text=it, relevant=frozenset("c")) for it in ("q", "p", "q")
        ),
    )

    lone = alone(of)

    assert [[it.id for it in one.documents] for one in lone] == [["b", "c"], ["a", "c"]]
    assert [[it.text for it in one.queries] for one in lone] == [["q", "q"], ["p"]]


def test_strangers_come_first_and_are_the_same_every_time() -> None:
    company = Company(strangers=3, memories=2)
    lone, in_company = alone(OWN), services(OWN, company, is_alone=True)

    first = [one.documents[:6] for one in in_company]

    assert first == [tuple(strangers(OWN, company))] * len(lone)
    assert [one.documents[6:] for one in in_company] == [one.documents for one in lone]
    assert [it.project for it in first[0]] == [f"stranger {at}" for at in (0, 0, 1, 1, 2, 2)]
    assert not {it.id for it in first[0]} & {it.id for it in OWN.documents}


def test_a_change_is_worse_or_better_and_small_ones_do_not_count() -> None:
    then = {"all": {"MRR": 0.5, "recall": 0.5, "nDCG": 0.5, NO_HIT: 0.5}}
    now = {"all": {"MRR": 0.4, "recall": 0.6, "nDCG": 0.5004, NO_HIT: 0.6}}

    assert changes(then, now) == {
        "worse": ["all: MRR 0.500 -> 0.400", "all: no hit 0.500 -> 0.600"],
        "better": ["all: recall 0.500 -> 0.600"],
    }


def test_recall_ndcg_and_reciprocal_rank_are_as_the_field_has_them() -> None:
    ranking = list("abcdefghij")

    assert recall(ranking, {"a", "e", "f", "z"}, 5) == 0.5
    assert recall(ranking, {"a", "e", "f", "z"}, 10) == 0.75
    assert recall([], {"a"}, 5) == 0

    assert ndcg(["a", "b"], {"a", "b"}) == 1
    assert ndcg(["x", "a"], {"a"}) == pytest.approx(0.63093, abs=1e-5)  # 1 / log2(3)
    assert ndcg(["a", "x", "b"], {"a", "b"}) == pytest.approx(1.5 / 1.63093, abs=1e-5)
    assert ndcg(["x"] * 10 + ["a"], {"a"}) == 0

    relevant = [str(number) for number in range(30)]

    assert ndcg(relevant[:10], set(relevant)) == 1

    assert reciprocal_rank(["x", "x", "a", "b"], {"a", "b"}) == pytest.approx(1 / 3)
    assert reciprocal_rank(["x"] * 10 + ["a"], {"a"}) == 0


def test_figures_are_means_over_the_queries_and_over_each_kind() -> None:
    found = Asked(relevant=frozenset("a"), context=["a"], search=["x", "a"], kind="easy")
    missed = Asked(relevant=frozenset("a"), context=["x"], search=[], kind="hard")

    groups = figures_by_kind([found, missed])

    assert list(groups) == ["all", "easy", "hard"]
    assert groups["all"]["context recall@5"] == 0.5
    assert groups["all"]["search MRR"] == 0.25
    assert groups["all"][NO_HIT] == 0.5
    assert groups["easy"] == figures([found])


def test_figures_within_a_budget_are_means_and_a_share_of_those_without() -> None:
    whole = Packed(budget=None, ranking=["a", "b"], tokens=90)
    first, none = (Packed(budget=200, ranking=it, tokens=50) for it in (["a"], []))
    two, one = frozenset("ab"), frozenset("a")

    found = figures(
        [
            Asked(relevant=two, context=["a", "b"], search=[], packed=(first, whole)),
            Asked(relevant=one, context=["a"], search=[], packed=(none, whole)),
        ]
    )

    assert found["context recall@5"] == 1
    assert found[recall_in(200)] == found[kept_in(200)] == 0.25
    assert (found[tokens_in(200)], found[tokens_in(None)]) == (50, 90)


def test_a_typo_changes_one_word_of_five_letters_and_not_its_first() -> None:
    text = "why is max_connections so low on staging"

    for seed in range(200):
        typed = mistyped(text, str(seed))

        assert typed != text
        assert abs(len(typed) - len(text)) <= 1
        assert typed.startswith("why is max_c")
        assert "o low on s" in typed


def test_the_same_seed_makes_the_same_typos_in_long_words() -> None:
    assert with_typos(OWN, 1) == with_typos(OWN, 1) != with_typos(OWN, 2)

    text = "who is it 数据库连接池的上限"

    assert mistyped(text, "1") == text


@pytest.mark.parametrize(
    ("documents", "relevant"), [(["a", "a"], ["a"]), (["a"], ["b"]), (["a"], [])]
)
def test_a_set_with_a_fault_is_refused(
    tmp_path: Path, documents: list[str], relevant: list[str]
) -> None:
    row = {"project": "p", "session": "s", "title": "t", "text": "x"}
    lines = [json.dumps(row | {"id": each}) for each in documents]
    (tmp_path / "documents.jsonl").write_text("\n".join(lines), "utf-8")
    query = {"project": "p", "query": "x", "relevant": relevant}
    (tmp_path / "queries.jsonl").write_text(json.dumps(query), "utf-8")

    with pytest.raises(SystemExit):
        judged(str(tmp_path))


def test_documents_may_lie_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_bytes((SET / "queries.jsonl").read_bytes())

    elsewhere = judged(f"{tmp_path}:{SET}")

    assert elsewhere.documents == OWN.documents
