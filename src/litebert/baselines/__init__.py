"""What simple methods score on the same examples, to compare models with. No torch at import.

features    texts -> rows of numbers: counts, TF-IDF, n-grams, means of word vectors
labels      rows -> labels, numbers and tags; overlap: options, answers and nearness, from the words that texts share
table       the methods that apply to a task, scored on its files: majority, bag of words, TF-IDF, ... fastText
verdict     whether a model is ahead of the methods that take seconds
masks       n-grams and connectives on the batches that a pretrained model is scored on
"""
