"""Calls over HTTP: requests and answers, retries, errors of the way, files up and down."""
