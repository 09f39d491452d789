"""Tasks: labelled data -> examples -> sequences, and a model's outputs -> predictions -> scores; torch only in losses.

read (a task's name and files) -> glue, squad, race (public formats), own and tables (files and rows of users) -> task
(what it is, its examples) -> features (sequences of tokens) -> decode (outputs to predictions) -> metrics. kinds has
one object per kind of task, which knows all that differs between them.
"""
