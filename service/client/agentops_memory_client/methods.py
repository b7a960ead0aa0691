"""Functions as methods: a client shows the name, the text and the signature of what it asks."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

from .call import Call

Method = TypeVar("Method", bound=Callable[..., Any])

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def shown_as(question: Callable[..., object], method: Method, *, beside: int = 0) -> Method:
    """The method, as `help` and `inspect` see the question with `self` before its parameters.

    It answers what a call reads. The first parameters that stand beside the
    question are not shown.
    """
    signature = inspect.signature(question)
    answer = signature.return_annotation
    if get_origin(answer) is Call:
        (answer,) = get_args(answer)
    parameters = list(signature.parameters.values())[beside:]
    functools.update_wrapper(method, question, ("__name__", "__qualname__", "__doc__"), ())
    method.__dict__["__signature__"] = inspect.Signature(
        [_SELF, *parameters], return_annotation=answer
    )
    method.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": answer}
    return method
