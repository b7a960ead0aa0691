"""The service, tested through its front door."""
