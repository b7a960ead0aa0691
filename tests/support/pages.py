"""The pages of the console, read and used as by a browser, and a service that they show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx

from .service import Service, observation


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

    @property
    def words(self) -> str:
        """Its text on one line."""
        return " ".join(self.text.split())

    @property
    def cells(self) -> str:
        """The same, each cell of a table apart from the next."""
        return " ".join(" ".join(self.texts).split())

    def twin(self, http: httpx.Client, start: str) -> Any:
        """What the route that is named in its foot and begins so answers."""
        path = next(it for it in self.links if it.startswith(start))
        return http.get(path).raise_for_status().json()

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


MARKUP = '<img src=x onerror=alert(1)><b id="hostile">b</b>'
HOSTILE = f"{MARKUP} \u202egnp.exe\u200b"
PROMPT = "why do ordres wait in the queue"
# What is seeded, as every view shows it; three pages more have ids that are drawn.
VIEWS = [
    f"/ui/{it}"
    for it in f"""
        ask?project=shop&limit=4&max_tokens=140&why_not=9&query={PROMPT.replace(" ", "+")}
        ask memories?project=shop memories?q=orders memories?q=zebra
        memories/1 memories/4 memories/1/edit memories/1/erase review review?project=shop
        projects projects?project=bakery sessions sessions/s1 documents documents/agents/coder
        documents/agents/coder?namespace=team&memory_type=semantic
        documents/refs?memoryRef=mem://support
        documents/refs/entry?memoryRef=mem://support&memoryId=limit erasures/x service nowhere
    """.split()
]
NAMES = [*VIEWS, "a store", "a document", "an agent's entry"]


SHOP: tuple[tuple[str, str, str, list[str], dict[str, Any]], ...] = (
    ("Orders go through a queue", ("Every order goes on a queue before it is billed.\n\nReason: "
     "the billing provider times out under load.\nFiles: orders/queue.py, orders/worker.py."),
     "decision", ["orders", "billing"], {"topic_key": "orders/queue"}),
    ("Orders go through two queues", ("Every order goes on one of two queues before it is billed."
     "\n\nReason: the billing provider times out under load.\nFiles: orders/queue.py, "
     "orders/express.py."), "decision", ["orders", "express"],
     {"topic_key": "orders/queue", "pinned": True}),
    ("Orders wait in a queue", ("Orders wait in a queue before they are billed, as the provider "
     "times out."), "decision", ["orders"], {}),
    ("Invoices were sent twice", ("The worker retried after a timeout although the provider had "
     "the order. An idempotency key goes with each request now."), "bugfix", ["billing"], {}),
)  # fmt: skip


def seed(service: Service, *, is_hostile: bool = True) -> None:
    """A shop with 34 memories, and a bakery with what is to be looked at: due, ending, alike."""

    def save(content: str, similar: int = 0, **fields: Any) -> None:
        body = observation(content, **{"project": "shop", **fields})
        service.http.post(f"/observations?similar={similar}", json=body).raise_for_status()

    for number, (title, content, kind, tags, fields) in enumerate(SHOP):
        service.clock.advance(days=9 * (number == 1))
        save(content, title=title, type=kind, tags=tags, **fields)
    if is_hostile:
        save(HOSTILE, type=HOSTILE[:50], title=HOSTILE, tags=[HOSTILE[:40]], scope=HOSTILE[:20])
    for number in range(30):
        service.clock.advance(hours=7)
        save(
            f"Courier {number} takes {number * 7} parcels, and more on Fridays. " * 4,
            type=("discovery", "config", "pattern")[number % 3], tags=["couriers"],
            title=f"How many parcels courier {number} takes", session_id=f"s{number // 10 + 2}",
        )  # fmt: skip
    prompt = f"Make the orders reliable{f' {HOSTILE}' if is_hostile else '.'}"
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "Done."}]
    service.http.post("/sessions/s1/end", json={"messages": messages}).raise_for_status()

    name, now = MARKUP if is_hostile else "the baker", service.clock.now
    where: dict[str, Any] = {"project": "bakery", "session_id": name, "tags": [name[:40]]}
    due, end = (f"{now + timedelta(days=days):%FT%TZ}" for days in (1, 5))
    save("The oven takes 40 minutes to 230 degrees.", type="config", title=f"The oven of {name}",
         review_at=due, **where)  # fmt: skip
    save(f"Rye bread is cheaper this week, says {name}.", type="note", title="Rye bread on sale",
         expires_at=end, **where)  # fmt: skip
    for place in ("", " and covered"):
        save(f"The dough of {name} rests overnight in the cold room{place}, or it tears.",
             similar=3, title=f"Dough rests overnight{place}", **where)  # fmt: skip
    save("Flour comes on Mondays.", project=name, session_id="flour", title="Flour")
    service.clock.advance(days=2)


def seed_documents(service: Service) -> list[str]:
    """Something in a store, of agents and in refs; a store's page, a document's, an entry's."""

    def put(path: str, body: dict[str, object], method: str = "POST", agent: str = "coder") -> str:
        answer = service.http.request(method, path, json=body, headers={"X-Agent-ID": agent})
        id_: str = answer.raise_for_status().json().get("id", "")
        return id_

    stores = "/api/v1/cloud/memory_stores"
    pairs = {"team": "shop", HOSTILE[:60]: HOSTILE}
    put(stores, {"name": HOSTILE[:64], "description": HOSTILE, "metadata": pairs})
    store = put(stores, {"name": "Team notes", "description": "What holds for the whole shop."})
    texts = [
        "Staging is deployed on Fridays, after the tests of the night.\nAsk Ada before.",
        "Staging is deployed on Mondays, after the tests of the night.\nAsk Ada or Ben before.",
    ]
    memories = f"{stores}/{store}/memories"
    entry = put(memories, {"path": "deploy/staging.md", "content": texts[0], "metadata": pairs})
    service.clock.advance(days=1)
    put(f"{memories}/{entry}", {"content": texts[1], "metadata": pairs}, "PUT")
    for path in ("deploy/live.md", "deploy/keys/rotation.md", "people.md", f"of/{HOSTILE[:40]}"):
        put(memories, {"path": path, "content": HOSTILE})
    shared = {"agent_id": "coder", "memory_type": "semantic", "namespace": "team"}
    own = {"agent_id": "coder", "memory_type": "episodic", "namespace": "invoices"}
    value = {"done": 12, "total": 47, HOSTILE: [HOSTILE]}
    put("/api/v1/memory", {**shared, "key": "style", "value": {"indent": 4}})
    put("/api/v1/memory", {**shared, "key": HOSTILE, "value": value, "tags": [HOSTILE[:50]]})
    sealed = {"sensitivity": "confidential", "value": {"iban": "DE00"}}
    put("/api/v1/memory", {**own, "key": "account", **sealed})
    agent = put("/api/v1/memory", {**own, "key": "progress", "value": value, "pinned": True,
                                   "tags": [HOSTILE[:50]]})  # fmt: skip
    refs, ref = "/v1/host/agentops-memory/memory", {"memoryRef": "mem://support"}
    old = "Refunds over 100 EUR need a second signature."
    put(refs, {**ref, "content": f"{old} {HOSTILE}", "tags": [HOSTILE[:50]], "id": "old"})
    put(refs, {**ref, "content": old.replace("100", "250"), "id": "limit", "supersedes": ["old"]})
    put(refs, {**ref, "content": HOSTILE, "tags": [HOSTILE[:50]]})
    page = "/ui/documents"
    return [
        f"{page}/stores/{store}",
        f"{page}/stores/{store}/{entry}",
        f"{page}/agents/coder/{agent}",
    ]
