"""The same requests to two services with one clock: every answer is the same, byte for byte."""
