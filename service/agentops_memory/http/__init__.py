"""The common parts of all protocols: bodies, parameters, refusals, ids, keys, OpenAPI."""
