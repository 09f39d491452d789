"""Labelled tasks: files -> examples -> sequences, and outputs -> predictions -> scores. Only losses use torch."""
