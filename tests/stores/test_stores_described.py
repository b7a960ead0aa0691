"""What memory stores answer in either dialect is what its description says."""

import pytest
import schemathesis

from ..support.service import Service
from ..support.store_dialects import Dialect, every_request, in_both, stocked
from ..support.stores import delete, entry, entry_at, redact, versions


@in_both
def test_every_answer_is_as_described(service: Service, dialect: Dialect) -> None:
    schema = schemathesis.openapi.from_dict(service.http.get("/openapi.json").json())
    known = stocked(service.http)
    home = {"id": known[0]}
    delete(service.http, entry_at(home, entry(service.http, home, "gone", metadata={"a": "b"})))
    redact(service.http, home, versions(service.http, home)[-2])
    templates = {it.name: it.path for it in dialect.operations()}

    for it in every_request(*known, dialect):
        answer = it.send(service.http)
        assert answer.is_success, answer.text
        schema[templates[it.name]][it.method].validate_response(answer)

    described = {
        operation["operationId"]
        for path, methods in schema.raw_schema["paths"].items()
        for operation in methods.values()
        if path.startswith(dialect.prefix)
    }
    assert described == templates.keys()
    with pytest.raises(Exception, match="data"):  # so would anything else be noticed
        schema[dialect.stores]["GET"].validate_response(service.http.get("/stats"))
