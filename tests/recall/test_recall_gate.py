"""What recall finds in judged questions of our own: no figure changes unseen."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from benchmarks.recall.asking import answers, load
from benchmarks.recall.company import ALONE, TOGETHER, Company, services
from benchmarks.recall.judged import Judged, judged
from benchmarks.recall.metrics import (
    Asked,
    Budget,
    figures,
    figures_by_kind,
    gain,
)

from agentops_memory.recall import query

from ..support.service import serving

SET = Path(__file__).parents[1] / "data" / "recall"
TOLERANCE = 0.0005
WRITE = "If this is wanted, write it down: python -m benchmarks.recall --write-figures"

Groups = Mapping[str, Mapping[str, float]]
OWN = judged(str(SET))


def asked(path: Path, of: Judged, budgets: Sequence[Budget] = ()) -> list[Asked]:
    """The answers of a service that holds a set."""
    with serving(path) as service:
        port = urlsplit(service.url).port
        assert port is not None
        load(port, of)
        return answers(port, of, budgets)


def written(name: str) -> Groups:
    """The figures to compare with, of the set in one service or of each project alone."""
    groups: Groups = json.loads((SET / "figures.json").read_text("utf-8"))[name]
    return groups


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


@pytest.mark.slow
def test_a_project_finds_as_much_alone_as_beside_others(tmp_path: Path) -> None:
    sets = services(OWN, Company(strangers=4), is_alone=True)

    found = [asked(tmp_path / f"{number}.db", of) for number, of in enumerate(sets)]

    now, then = figures(list(chain(*found))), written(ALONE)["all"]
    assert abs(now["context recall@5"] - then["context recall@5"]) <= 0.01


@pytest.mark.slow
def test_the_figures_see_that_a_technique_is_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_END", re.compile("(?!)"))  # a prompt is one sentence
    without = figures_by_kind(asked(path, OWN))

    assert changes(written(TOGETHER), without)["worse"] != []
