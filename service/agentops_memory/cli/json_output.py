"""The service's answers as the JSON of its REST API, which a program may know already."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click

from agentops_memory_client.contract.models import Context, Found

from ..domain.text.instants import rendered

HEADERS = {"redacted", "omitted"}  # what the API says in headers


def print_json(noun: object) -> None:
    """Print one document, in ASCII: nothing in it is an escape of a terminal."""
    click.echo(json.dumps(json_of(noun)))


def json_of(noun: object) -> Any:
    """A noun, or several, as the API answers them; parts without a value are absent."""
    if isinstance(noun, Found):
        return _found(noun)
    if isinstance(noun, Context):
        return _context(noun)
    if isinstance(noun, datetime):
        return rendered(noun)
    if isinstance(noun, list | tuple):
        return [json_of(each) for each in noun]
    if is_dataclass(noun):
        parts = {field.name: getattr(noun, field.name) for field in fields(noun)}
        return {name: json_of(part) for name, part in parts.items() if _is_shown(name, part)}
    return noun


def _found(found: Found) -> Any:
    hits = json_of(found.hits)
    return _explained({"results": hits}, found.explanation) if found.explanation else hits


def _context(context: Context) -> Any:
    answer = {
        "recent_sessions": [{"summary": summary} for summary in context.summaries],
        "recent_observations": json_of(context.observations),
    }
    return _explained(answer, context.explanation)


def _explained(answer: dict[str, Any], explanation: Mapping[str, Any] | None) -> dict[str, Any]:
    return answer | {"explain": explanation} if explanation else answer


def _is_shown(name: str, part: object) -> bool:
    return name not in HEADERS and part is not None and not (name == "tags" and part == ())
