"""The Memory Stores API: stores of documents at paths, with versions, below /api/v1/cloud."""
