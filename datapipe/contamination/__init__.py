"""Contamination: which examples of an eval suite occur in a text, and how much of each."""
