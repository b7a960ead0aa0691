"""Which tools an agent gets, as the platform's Agent resource says it."""

from dataclasses import dataclass

DEFAULT_TOOLS = ("mem_save", "mem_search", "mem_context")
ALL_TOOLS = (
    *DEFAULT_TOOLS,
    "mem_get", "mem_update", "mem_delete", "mem_history", "mem_timeline", "mem_stats",
    "mem_session_start", "mem_session_end", "mem_suggest_topic_key",
)  # fmt: skip
SETS = {"default": DEFAULT_TOOLS, "all": ALL_TOOLS}

CONTEXT_LIMIT = 5
MOST_CONTEXT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What an agent is offered. A context limit of 0 asks for no context, and gives none."""

    tools: tuple[str, ...] = DEFAULT_TOOLS
    context_limit: int = CONTEXT_LIMIT
    auto_summarize: bool = True  # a session's end takes messages, and makes its summary of them
    auto_save: bool = True  # off: no mem_save
    auto_search: bool = True  # off: no mem_search

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the tools, in the order of all."""
        off = {"mem_save": not self.auto_save, "mem_search": not self.auto_search}
        return tuple(name for name in ALL_TOOLS if name in self.tools and not off.get(name))

    def offers(self, tool: str) -> bool:
        """Whether the agent has the tool."""
        return tool in self.offered


def tools(text: str) -> tuple[str, ...]:
    """`default`, `all`, or names with commas; ValueError says what is wrong."""
    given = [name.strip() for name in text.split(",") if name.strip()]
    names = dict.fromkeys(name for each in given for name in SETS.get(each, (each,)))
    unknown = [name for name in names if name not in ALL_TOOLS]
    if unknown or not names:
        raise ValueError(f"is not default, all, or names among {', '.join(ALL_TOOLS)}")
    return tuple(names)


def context_limit(text: str) -> int:
    """A number from 0 to 50; ValueError for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) <= MOST_CONTEXT):
        raise ValueError(f"is not a number from 0 to {MOST_CONTEXT}")
    return int(text)
