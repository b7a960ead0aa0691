"""The dialect of PostgreSQL, its connections, and what its errors mean."""
