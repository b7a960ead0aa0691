"""What the protocols share: bodies, parameters, refusals, ids, idempotency keys, OpenAPI."""
