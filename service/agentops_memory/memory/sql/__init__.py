"""The SQL of the record tables, written once for every engine: a module a table."""
