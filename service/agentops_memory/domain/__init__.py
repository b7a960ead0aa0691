"""The rules of memory: no SQL, no HTTP, no third-party import."""
