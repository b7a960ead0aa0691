"""What the domain asks of storage: every promise in prose, a module for each noun."""
