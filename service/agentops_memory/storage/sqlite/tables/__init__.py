"""The SQL of the record, a module for each table."""
