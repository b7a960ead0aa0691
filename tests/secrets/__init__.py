"""Redaction and scans."""
