"""The OpenAPI document as a page for people."""
