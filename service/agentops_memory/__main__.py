"""The program, as `agentops-memory` and as `python -m agentops_memory`."""

import gc

# Objects made until garbage is looked for: imports make many and leave none, and at Python's own
# 700 a tenth of a short command goes into looking.
ALLOCATIONS = 50_000


def main() -> None:
    gc.set_threshold(ALLOCATIONS)
    from .cli import main as program  # noqa: PLC0415 - what is imported here makes most of them

    program()


if __name__ == "__main__":
    main()
