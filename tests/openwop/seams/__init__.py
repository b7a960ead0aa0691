"""The service with the routes that the published OpenWOP suite drives; `python -m` starts it."""
