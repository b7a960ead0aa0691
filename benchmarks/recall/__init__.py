"""What recall finds: the service is asked over HTTP, and a judgement says what was wanted."""
