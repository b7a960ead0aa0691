"""What is wrong with a text of hooks, gathered while it is read, and how a message shows a text."""

MOST = 100  # faults in one message
LONGEST_SHOWN = 80  # code points


class TooManyFaults(Exception):
    """Reading ends: the limit of faults is reached."""


class Faults:
    """Faults in the order in which they are met. TooManyFaults is raised with the hundredth."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add(self, place: str, sentence: str) -> None:
        self.messages.append(f"{place}: {sentence}")
        if len(self.messages) == MOST:
            self.messages.append("There may be more faults: the reading ended here.")
            raise TooManyFaults


def line(text: str) -> str:
    """The text on one line that is not too long."""
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in shown)


def quoted(text: str) -> str:
    """The text as a message quotes it."""
    return f'"{line(text)}"'
