"""Export and import: between services, any number of times, with a dry run."""
