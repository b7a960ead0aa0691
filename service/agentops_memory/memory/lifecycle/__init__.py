"""The life of what is stored: retention, erasure, projects as a whole, scans for secrets."""
