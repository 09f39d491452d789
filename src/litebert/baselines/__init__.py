"""What simple methods score on the same examples, so that a model's score means something. No torch at import.

table      the methods that apply to a task, scored on its files: majority, bag of words, TF-IDF, ... fastText
           features (texts -> rows of numbers) -> labels, tags, reading (rows -> predictions, per kind of task)
masks      n-grams and connectives on the batches that a pretrained model is scored on
"""
