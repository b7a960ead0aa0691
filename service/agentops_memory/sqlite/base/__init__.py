"""Connections, transactions, errors and SQL functions, which every part of this engine uses."""
