"""`python -m benchmarks`: every figure that has an aim, each a ratio within this run."""

from . import imports, reads, saves, soak, starts
from .figures import show
from .plan import Bench, bench, subject


def main() -> None:
    """Seed, start, drive, print."""
    with bench("benchmarks", __doc__) as made:
        _wide(made)
        _few_and_many(made)
        show(imports.imports(made))
        show(soak.soak(made, made.plan.soak))


def _wide(made: Bench) -> None:
    """Everything over many small projects; its memory last."""
    with subject(made, made.plan.wide) as asked:
        show(reads.layers(made, asked))
        show(reads.crowd(made, asked))
        show(saves.plain(made, asked))
        show(starts.memory(made, asked))
    show(saves.slowed(made))
    show(saves.lookalikes(made))


def _few_and_many(made: Bench) -> None:
    """A large file beside a small one; then the large one from its start."""
    with subject(made, made.plan.few) as few, subject(made, made.plan.many) as many:
        show(reads.sizes(made, few, many))
        show(reads.layers(made, many))
        show(reads.crowd(made, many, aim=None))
        show(saves.plain(made, many))
        show(starts.memory(made, many))
    show(starts.cold(made, many.service.path, many.size))


if __name__ == "__main__":
    main()
