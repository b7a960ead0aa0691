"""Scores in large areas by numpy, where it is installed; equal to the domain's to the last bit."""

from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from ...memory.model.bm25 import MOST, Place
from .area import WIDTH

LARGE = 500  # memories of an area, from which on it pays

Numpy = Any
"""The module, which may not be there to name its types."""


@cache
def numpy() -> Numpy | None:
    """None without the extra `fast`; imported when it is first asked for."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


def of_any(
    np: Numpy,
    stems: Iterable[tuple[float, "array[int]"]],
    often: "array[float]",
    norms: "array[float]",
    most: int | None,
) -> Mapping[Place, float]:
    """What `bm25.of_any` answers; with `most` of the best alone, and of those that equal them.

    Each stem comes with its idf, and with a place and a code for each memory that has it; `often`
    is by code. Each place is there once, so the sums are made in the same order.
    """
    # Another thread may add to what is by code, which nobody may look into meanwhile: a copy.
    of_code, of_place = np.array(often[:]), np.frombuffer(norms)
    sums = np.zeros(len(of_place))
    for idf, postings in stems:
        places, codes = np.frombuffer(postings, np.uintc).reshape(-1, WIDTH).T
        frequency = of_code[codes]
        sums[places] += idf * ((frequency * MOST) / (frequency + of_place[places]))
    found = np.flatnonzero(sums)
    if most is not None and len(found) > most:
        least = np.partition(sums[found], -most)[-most]
        found = np.flatnonzero(sums >= least)
    return dict(zip(found.tolist(), sums[found].tolist(), strict=True))
