"""What a tenant has is copied from one engine to the other, and compared."""
