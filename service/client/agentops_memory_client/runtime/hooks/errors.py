"""What is wrong with a text of hooks, gathered while it is read, and how a message shows a text."""

MOST = 100  # faults that are told at once
LONGEST_SHOWN = 80  # code points


class Enough(Exception):
    """There are so many faults that more would help nobody."""


class Faults:
    """Faults in the order in which they are met. Enough is raised with the hundredth."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def add(self, place: str, sentence: str) -> None:
        self.told.append(f"{place}: {sentence}")
        if len(self.told) == MOST:
            self.told.append("There may be more faults: the reading ended here.")
            raise Enough


def line(text: str) -> str:
    """The text on one line that is not too long."""
    told = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in told)


def quoted(text: str) -> str:
    """The text as a message quotes it."""
    return f'"{line(text)}"'
