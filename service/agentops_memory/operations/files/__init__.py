"""Files that are no database: keys, audit, redaction, locks; and atomic replacement of a file."""
