"""What is wrong with a body, field by field: as its model tells it, in sentences."""

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import AfterValidator
from pydantic_core import ErrorDetails, PydanticCustomError

from ..errors import BadFields

_FAULTS = {
    "missing": "is required",
    "string_type": "must be text",
    "string_unicode": "has a lone surrogate, which UTF-8 cannot say",
    "string_too_short": "must not be empty",
    "string_too_long": "has at most {max_length:,} characters",
    "too_short": "must not be empty",
    "too_long": "has at most {max_length:,} items",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le:,}",
    "int_parsing_size": "must be a whole number of at most 64 bits",
    "literal_error": "must be {expected}",
    "fault": "{said}",
    "of": "{said}",
}


def fault(phrase: str) -> PydanticCustomError:
    return PydanticCustomError("fault", "{said}", {"said": phrase})


def must(holds: Callable[[Any], bool], problem: str) -> AfterValidator:
    """Refuses a value of which it does not hold, with what is wrong with it."""

    def checked(value: Any) -> Any:
        if not holds(value):
            raise fault(problem)
        return value

    return AfterValidator(checked)


def fault_of(field: str, phrase: str) -> PydanticCustomError:
    return PydanticCustomError("of", "{said}", {"field": field, "said": phrase})


def bad_fields(faults: Iterable[ErrorDetails]) -> BadFields:
    return BadFields([_fault(each) for each in faults])


def said_of(fault: ErrorDetails) -> str:
    said, details = _FAULTS.get(fault["type"], "is not what it should be"), fault.get("ctx", {})
    if fault["type"] == "string_too_short" and details["min_length"] > 1:
        said = "has at least {min_length} characters"
    if fault["type"] == "too_short" and details["min_length"] > 1:
        said = "has at least {min_length} items"
    return said.format(**details)


def _fault(fault: ErrorDetails) -> tuple[str, str]:
    details, path = fault.get("ctx", {}), ""
    for step in [*fault["loc"], *([details["field"]] if "field" in details else [])]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path or "the body", said_of(fault)
