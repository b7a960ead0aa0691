"""A page as a browser reads it: its elements, its sections, and the text in them."""

from html.parser import HTMLParser

EMPTY = {"meta", "wbr"}
TITLES = {"h3", "h4", "summary"}  # what follows one in a section stands under it


class Shown(HTMLParser):
    """The page; it fails on an element that is not closed, or not where it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.style = ""
        # section -> the title in it -> the element -> the texts of those that stand there
        self.sections: dict[str, dict[str, dict[str, list[str]]]] = {}
        self._open: list[tuple[str, int]] = []
        self._section = self._title = ""
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        assert len(said) == len(attrs), attrs
        self.elements.append((tag, said))
        if tag not in EMPTY:
            self._open.append((tag, len(self.text)))
        if tag == "section":
            self._section = said["id"]
            self.sections[self._section] = {}

    def handle_endtag(self, tag: str) -> None:
        opened, begun = self._open.pop()
        assert opened == tag, (opened, tag)
        if tag == "section":
            self._section = ""
        if self._section:
            self._told(tag, self.text[begun:])

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "style":
            self.style += data
        else:
            self.text += data

    def _told(self, tag: str, text: str) -> None:
        if tag in TITLES:
            self._title = text if tag != "h3" else ""
        under = self.sections[self._section].setdefault(self._title, {})
        under.setdefault(tag, []).append(text)
