"""The pages of the console, as a browser would read them and send their forms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode

import httpx


@dataclass
class Form:
    """A form as it stands on a page: where it goes, and what it holds."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str, str]] = field(default_factory=list)  # label, name, value


class Page(HTMLParser):
    """A page: its elements, its forms, its links, and the text that is shown."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__()
        self.status = answer.status_code
        self.url = answer.url
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.forms: list[Form] = []
        self.links: dict[str, str] = {}
        self.text = ""
        self.texts: list[str] = []  # the same, as its elements have it
        self._link: str | None = None
        self._button: tuple[str, str] | None = None
        self._said = ""
        self._area: str | None = None
        self.feed(answer.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.elements.append((tag, told))
        name, value = told.get("name") or "", told.get("value") or ""
        if tag == "form":
            self.forms.append(Form(told.get("action") or "", told.get("method") or "get"))
        elif tag == "a" and told.get("href"):
            self._link, self._said = told["href"], ""
        elif tag == "button":
            self._button, self._said = (name, value), ""
        elif tag == "textarea":
            self._area, self._said = name, ""
        elif (
            tag == "input"
            and name
            and self.forms
            and (told.get("type") not in ("checkbox", "radio") or "checked" in told)
        ):
            self.forms[-1].fields.append((name, value))

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._link is not None:
            self.links.setdefault(" ".join(self._said.split()), self._link)
            self._link = None
        elif tag == "button" and self._button is not None and self.forms:
            self.forms[-1].buttons.append((" ".join(self._said.split()), *self._button))
            self._button = None
        elif tag == "textarea" and self._area is not None:
            self.forms[-1].fields.append((self._area, self._said.removeprefix("\n")))
            self._area = None

    def handle_data(self, data: str) -> None:
        self._said += data
        self.text += data
        self.texts.append(data)

    def form(self, button: str) -> Form:
        """The first form with a button of this label."""
        return next(it for it in self.forms if button in [label for label, *_ in it.buttons])


def get(http: httpx.Client, path: str, **parameters: str) -> Page:
    return Page(http.get(path, params=parameters or None, follow_redirects=True))


def press(
    http: httpx.Client, page: Page, button: str, changes: Mapping[str, str] | None = None
) -> Page:
    """Send the form of a button, with some fields changed; the page to which that leads."""
    form = page.form(button)
    pressed = next(it for it in form.buttons if it[0] == button)
    fields = [*form.fields, *([pressed[1:]] if pressed[1] else [])]
    given: list[tuple[str, str]] = [
        (name, (changes or {}).get(name, value)) for name, value in fields
    ]
    given += [(name, it) for name, it in (changes or {}).items() if name not in dict(fields)]
    action = str(page.url.join(form.action))
    if form.method == "get":
        return Page(http.get(action, params=urlencode(given), follow_redirects=True))
    return Page(sent(http, action, given))


def sent(http: httpx.Client, action: str, fields: list[tuple[str, str]]) -> httpx.Response:
    """What a form is answered, once the browser has followed where it leads."""
    body: dict[str, list[str]] = {}
    for name, value in fields:
        body.setdefault(name, []).append(value)
    return http.post(action, data=body, follow_redirects=True)
