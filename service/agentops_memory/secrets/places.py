"""Where an assignment stands: in a line of its own, among pairs, where code may be."""

import re

REACH = 160  # characters of lookbehind before a name


def follows(before: re.Pattern[str], found: re.Match[str]) -> bool:
    """Whether the pattern matches just before this match (a bounded lookbehind)."""
    start = found.start()
    return before.search(found.string, max(0, start - REACH), start) is not None


def is_literal(found: re.Match[str]) -> bool:
    """Whether the value is a literal: quoted, right after its operator, or alone in its line."""
    if found["between"].strip() in ("(", "|"):
        return False
    if found["quote"] is not None:
        return True
    if found.string[found.end("secret") : found.end("secret") + 1] in (",", ")", "]"):
        return _is_pair(found)
    if found["between"] in ("=", ":-", ">") or "value" in found["between"].lower():
        return True
    return found["between"].isspace() or is_alone(found)


def _is_pair(found: re.Match[str]) -> bool:
    """Whether this is among variables, or in a line of pairs: `password=...,user=bob`."""
    if found["between"] != "=":
        return False
    after, end = found.string, found.end("secret")
    if found["name"].isupper():
        return _PAIR.match(after, end) is not None
    pairs = _PAIRS.match(after, end)
    is_line = pairs is not None and _LINE_END.match(after, pairs.end()) is not None
    return is_line and follows(_LINE_BEGIN, found)


def is_alone(found: re.Match[str]) -> bool:
    """Whether the assignment is a line of its own, but for a comment."""
    return follows(_LINE_BEGIN, found) and _LINE_END.match(found.string, found.end()) is not None


def is_text(found: re.Match[str]) -> bool:
    """Whether no code may stand here: in quotes, after capitals, after `=` without spaces."""
    if found["quote"] not in (None, "`"):
        return True
    after = found.string[found.end("secret") : found.end("secret") + 1]
    if after in (",", ")", "]"):
        return _is_pair(found)
    is_plain = is_literal(found) and not is_spaced(found) and after != ";"
    return found["name"].isupper() or is_plain


def is_spaced(found: re.Match[str]) -> bool:
    """Whether this is `name = value`, as code writes it."""
    return "=" in found["between"] and found["between"] != "="


_LINE_BEGIN = re.compile(
    r"(?:^|[\r\n]|\\n|\x1b\[\d{0,2}m)[ \t>|#+*/0-9.)-]{0,40}"
    r"(?:(?:export|set|env|arg|setx?|let|const|var|readonly|local|-e|--env)[ \t])?"
    r"""\\{0,3}["'`]?[\w.$:-]{0,80}\Z""",
    re.IGNORECASE,
)
_LINE_END = re.compile(r"""\\{0,3}["'`]?[ \t]*(?:$|[\r\n]|\\{1,2}[nr\r\n]|\x1b\[|[ \t](?:#|//))""")
_PAIR = re.compile(r",[A-Z_][A-Z0-9_]*=")
_PAIRS = re.compile(r"""(?:, ?[\w.-]{1,32}=[^\s,()\[\]"'`;\\]{1,64}){1,8}""")
