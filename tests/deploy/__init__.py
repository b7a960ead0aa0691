"""What deploys the service."""
