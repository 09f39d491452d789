"""Text -> tokens on disk, and the vocabularies for it. No torch in here.

A corpus build, in the order in which data flow:

    sources     files, folders, globs, URLs -> bytes, decompressed
    readers     bytes -> blocks of whole documents -> documents (text, JSON lines, Parquet, wikiextractor)
                encodings: advice on other than UTF-8
    sentences   document -> sentences, by rules for each script
    workers     block -> tokens, in many processes or on Ray
    build       the whole build, resumable and in shards; build_folder: its state on disk
    store       the result, memory-mapped; store_writer: how it is written

Vocabularies:

    normalize        Unicode normalisation before a vocabulary
    tokenizer        the interface; spiece and wordpiece implement it; words: which pieces begin a word
    tokenizer_files  folders in and out, for us and for transformers
    train_vocab      text -> a new SentencePiece vocabulary

Words as people read them, for baselines and search: lexical.

generate makes the small story corpus of the quickstart and the tests from `topics/`.
"""
