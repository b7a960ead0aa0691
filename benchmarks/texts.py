"""`python -m benchmarks.texts`: what preparing text for the index costs, and that it is linear."""

import time
from collections.abc import Callable, Sequence
from itertools import islice

from agentops_memory.recall.query import parse_query
from agentops_memory.recall.text import indexed

from . import corpus

ROW = 300  # characters of an ordinary row
LONGEST = 50_000  # characters of the longest content
ROUNDS = 5

HOSTILE = {
    "letters": "a",
    "capitals": "A",
    "humps": "aA",
    "acronyms": "AAaa ",
    "connectors": "-",
    "compounds": "a.b-c_",
    "versions": "v1.",
    "Chinese": "数",
    "Thai": "ก่",
    "combining marks": "\u0301\u0316",
    "kana marks": "\uff9e\u0301",
    "ligatures": "\ufdfa",
    "emoji": "❤\ufe0f",
    "white space": " ",
}


def main() -> None:
    """Print the cost of ordinary rows, and of hostile texts and their halves."""
    rows = [piece.content[:ROW] for piece in islice(corpus.pieces(1), 5000)]
    print(f"{_microseconds(indexed, rows):6.1f} us to index a row of prose and code")
    print(f"{_microseconds(indexed, ['数据库连接池耗尽了。' * (ROW // 10)]):6.1f} us of Chinese")
    print(f"{_microseconds(parse_query, corpus.prompts(2, 500)):6.1f} us to parse a prompt")
    print(f"{LONGEST:,} characters, and half of them:")
    for name, part in HOSTILE.items():
        text = (part * LONGEST)[:LONGEST]
        whole, half = (_microseconds(indexed, [text[:size]]) for size in (LONGEST, LONGEST // 2))
        print(f"  {name:16} {whole / 1e3:6.1f} ms {half / 1e3:6.1f} ms {whole / half:5.2f} x")


def _microseconds(work: Callable[[str], object], texts: Sequence[str]) -> float:
    """What one text takes, in the best of some rounds."""
    return min(_round(work, texts) for _ in range(ROUNDS)) / len(texts) * 1e6


def _round(work: Callable[[str], object], texts: Sequence[str]) -> float:
    began = time.process_time()
    for text in texts:
        work(text)
    return time.process_time() - began


if __name__ == "__main__":
    main()
