"""Recall: search and context, their budget and their explanation."""
