"""Examples of one document after another in plain Python: the reference for the fast code.

Like the released script, it holds tokens in lists and pops them one by one. Tokens are their own numbers in the store.
"""

from __future__ import annotations

from slow_masking import splitmix64, upper

SHORT, LENGTH, CUT, RANDOM_B, SWAP, PARTNER, PARTNER_START = range(7)
POPS_A, POPS_B = 1 << 32, 1 << 33
WORD = (1 << 64) - 1


def chance(key, counter, probability):
    return upper(splitmix64(key, counter)) < round(probability * 2**32)


def pick(key, counter, limit):
    return upper(splitmix64(key, counter)) * limit >> 32


def hash_numbers(*parts):
    result = 0
    for part in parts:
        result = splitmix64((result + part * 0x9E3779B97F4A7C15) & WORD, 0)
    return result


def join(sentences):
    return [token for sentence in sentences for token in sentence]


def gather_sentences(sentences, target, recipe):
    """The window that begins with the first of these sentences, and how many it takes."""
    taken = 0
    length = 0
    for sentence in sentences:
        if recipe.truncation == "whole" and taken and length + len(sentence) > target:
            break
        taken += 1
        length += len(sentence)
        if recipe.truncation == "trim" and length >= target:
            break
    return taken


def pop_tokens(a, b, limit, key, recipe, swapped):
    """Pop from the longer segment, front or back at random (or the outer end of the text), until both fit."""
    pops = {POPS_A: 0, POPS_B: 0}
    outer_end = {POPS_A: -1 if swapped or not b else 0, POPS_B: 0 if swapped else -1}
    while len(a) + len(b) > limit:
        longer, stream = (a, POPS_A) if len(a) > len(b) else (b, POPS_B)
        if recipe.truncation == "whole":
            longer.pop(outer_end[stream])
            continue
        index = pops[stream]
        bit = splitmix64(key, stream + index // 64) >> (63 - index % 64) & 1
        longer.pop(0 if bit else -1)
        pops[stream] += 1


def slow_examples(documents, recipe, key):
    """For each document (a list of sentences, each a list of tokens) its examples: (first, second, order)."""
    return [_document_examples(documents, number, recipe, key) for number in range(len(documents))]


def _document_examples(documents, number, recipe, key):
    sentences = documents[number]
    document_key = splitmix64(hash_numbers(key, 1), number)
    stretch_key = splitmix64(hash_numbers(key, 0), number)
    examples = []
    position = 0
    window = 0
    while position < len(sentences):
        window_key = splitmix64(stretch_key, window)
        window += 1
        full = recipe.max_length - (3 if recipe.pairs else 2)
        target = full
        length_key = document_key if recipe.short_draw == "document" else window_key
        if chance(length_key, SHORT, recipe.short_probability):
            target = 2 + pick(length_key, LENGTH, full - 1)
        left = sentences[position:]
        taken = gather_sentences(left, target, recipe)
        if recipe.pairs and recipe.truncation == "whole":
            if taken == 1 and len(left) > 1:
                taken = 2
            if recipe.one_sentence == "skip" and len(left) - taken == 1 and taken >= 3:
                taken -= 1
        chunk = left[:taken]
        position += taken

        if not recipe.pairs:
            a, b, order = join(chunk), [], -100
        elif taken > 1 and not (recipe.objective == "nsp" and len(documents) > 1 and chance(window_key, RANDOM_B, 0.5)):
            cut = 1 + pick(window_key, CUT, taken - 1)
            a, b = join(chunk[:cut]), join(chunk[cut:])
            order = -100 if recipe.objective == "none" else 0
            if recipe.objective == "sop" and recipe.truncation == "whole" and len(a) + len(b) > full:
                order = -100  # its outer ends are cut off, which would tell the order
            elif recipe.objective == "sop" and chance(window_key, SWAP, 0.5):
                a, b, order = b, a, 1
        elif taken > 1 or (recipe.one_sentence == "nsp" and len(documents) > 1):
            cut = 1 + pick(window_key, CUT, max(taken - 1, 1))
            position += cut - taken  # what random text takes the place of is used later
            a = join(chunk[:cut])
            others = [document for other, document in enumerate(documents) if other != number]
            partner = others[pick(window_key, PARTNER, len(others))]
            run = partner[pick(window_key, PARTNER_START, len(partner)) :]
            b = join(run[: gather_sentences(run, max(target - len(a), 1), recipe)])
            order = -100 if recipe.objective == "none" else 1
        elif recipe.one_sentence == "single":
            a, b, order = list(chunk[0]), [], -100
        else:
            continue
        a, b = list(a), list(b)
        pop_tokens(a, b, full, window_key, recipe, swapped=recipe.objective == "sop" and taken > 1 and order == 1)
        examples.append((a, b, order))
    return examples
