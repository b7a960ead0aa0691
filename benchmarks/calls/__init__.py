"""The calls that the service makes to serve one request, function by function."""
