"""Text: normalising, vocabularies, sentences, readers and token stores. No torch in here."""
