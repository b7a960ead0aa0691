"""HTTP around the protocols: application, authentication, limits, probes, the API's description."""
