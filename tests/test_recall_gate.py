"""What recall finds in judged questions of our own: no figure changes unseen."""

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from benchmarks.recall.asking import answers, load
from benchmarks.recall.judged import judged
from benchmarks.recall.metrics import (
    NO_HIT,
    Asked,
    figures,
    figures_by_kind,
    gain,
    ndcg,
    recall,
    reciprocal_rank,
)
from benchmarks.recall.typos import mistyped, with_typos

from agentops_memory.domain.text.features import Feature

from .service import serving

SET = Path(__file__).parent / "data" / "recall"
TOLERANCE = 0.0005
WRITE = "If this is wanted, write it down: python -m benchmarks.recall --write-figures"

Groups = Mapping[str, Mapping[str, float]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Groups:
    return figures_by_kind(asked(tmp_path_factory.mktemp("recall")))


def asked(folder: Path, without: str = "") -> list[Asked]:
    """The answers of a service that holds the set."""
    own = judged(str(SET))
    with serving(folder / "memory.db", MEMORY_RECALL_WITHOUT=without) as service:
        port = urlsplit(service.url).port
        assert port is not None
        load(port, own)
        return answers(port, own)


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


def test_recall_finds_what_it_found_before(measured: Groups) -> None:
    then: Groups = json.loads((SET / "figures.json").read_text("utf-8"))

    assert measured.keys() == then.keys(), WRITE
    assert changes(then, measured) == {"worse": [], "better": []}, WRITE


def test_the_figures_see_that_a_technique_is_off(measured: Groups, tmp_path: Path) -> None:
    without = figures_by_kind(asked(tmp_path, Feature.STOPWORDS))

    assert changes(measured, without)["worse"] != []


def test_a_change_is_worse_or_better_and_small_ones_do_not_count() -> None:
    then = {"all": {"MRR": 0.5, "recall": 0.5, "nDCG": 0.5, NO_HIT: 0.5}}
    now = {"all": {"MRR": 0.4, "recall": 0.6, "nDCG": 0.5004, NO_HIT: 0.6}}

    assert changes(then, now) == {
        "worse": ["all: MRR 0.500 -> 0.400", "all: no hit 0.500 -> 0.600"],
        "better": ["all: recall 0.500 -> 0.600"],
    }


def test_recall_is_the_share_of_the_relevant_in_the_first_places() -> None:
    ranking = list("abcdefghij")

    assert recall(ranking, {"a", "e", "f", "z"}, 5) == 0.5
    assert recall(ranking, {"a", "e", "f", "z"}, 10) == 0.75
    assert recall([], {"a"}, 5) == 0


def test_ndcg_is_one_for_the_best_order_and_less_for_a_later_place() -> None:
    assert ndcg(["a", "b"], {"a", "b"}) == 1
    assert ndcg(["x", "a"], {"a"}) == pytest.approx(0.63093, abs=1e-5)  # 1 / log2(3)
    assert ndcg(["a", "x", "b"], {"a", "b"}) == pytest.approx(1.5 / 1.63093, abs=1e-5)
    assert ndcg(["x"] * 10 + ["a"], {"a"}) == 0


def test_ndcg_asks_for_no_more_than_fits_into_ten_places() -> None:
    relevant = [str(number) for number in range(30)]

    assert ndcg(relevant[:10], set(relevant)) == 1


def test_the_reciprocal_rank_is_that_of_the_first_relevant() -> None:
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


def test_a_typo_changes_one_word_of_five_letters_and_not_its_first() -> None:
    text = "why is max_connections so low on staging"

    for seed in range(200):
        typed = mistyped(text, str(seed))

        assert typed != text
        assert abs(len(typed) - len(text)) <= 1
        assert typed.startswith("why is max_c")
        assert "o low on s" in typed


def test_the_same_seed_makes_the_same_typos() -> None:
    own = judged(str(SET))

    assert with_typos(own, 1) == with_typos(own, 1) != with_typos(own, 2)


def test_a_text_without_a_long_word_stays_as_it_is() -> None:
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

    assert elsewhere.documents == judged(str(SET)).documents
