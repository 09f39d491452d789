"""What simpler methods score on a task's own files, so that one sees what a model adds. No torch in here."""
