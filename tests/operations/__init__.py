"""Keys, tenants, backups, diagnosis, and faults."""
