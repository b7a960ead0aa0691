"""Transactions on the schema of each tenant."""
