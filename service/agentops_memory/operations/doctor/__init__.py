"""The examination of a whole service, running or not: settings, files, backups, databases."""
