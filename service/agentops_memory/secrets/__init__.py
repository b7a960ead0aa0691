"""Secret detection, by shape, label or assignment, and redaction. Pure."""
