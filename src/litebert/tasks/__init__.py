"""Labelled tasks: files -> examples -> sequences, and outputs -> predictions -> scores. No torch in here."""
