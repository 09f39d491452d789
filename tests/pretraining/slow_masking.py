"""Masking of one sequence in plain Python, one token at a time: the reference for the fast code.

It shares no code with `litebert.pretraining`: random numbers are SplitMix64 written out with Python's integers.
"""

from __future__ import annotations

WORD = (1 << 64) - 1
# The counters at which the four kinds of draws begin.
WORDS, SPANS, REPLACEMENTS, RANDOM_TOKENS = 0, 1 << 31, 1 << 32, 1 << 33


def splitmix64(key: int, counter: int) -> int:
    number = (key + (counter + 1) * 0x9E3779B97F4A7C15) & WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & WORD
    return number ^ (number >> 31)


def upper(bits: int) -> int:
    return bits >> 32


def lower(bits: int) -> int:
    return bits & 0xFFFFFFFF


def draw_n(number: int, max_ngram: int) -> int:
    """n with probability (1/n) / (1 + 1/2 + ... + 1/max_ngram), from 32 random bits."""
    total = sum(1 / n for n in range(1, max_ngram + 1))
    share = 0.0
    for n in range(1, max_ngram):
        share += 1 / n
        if number < round(share / total * 2**32):
            return n
    return max_ngram


def slow_mask(a, b, budget, key, recipe, special, starts_word, replacements, mask_id):
    """Mask the tokens of segments a and b; gives {place: (label, seen)} and the spans [(first place, words), ...]."""
    tokens = list(a) + list(b)
    # Words are lists of places. A special token belongs to no word and ends the one before it.
    words, part_of, parts = [], [], 0
    ended = True
    for place, token in enumerate(tokens):
        segment_begins = place == 0 or (place == len(a) and not recipe.ngram_across_separator)
        if segment_begins:
            parts += 1
        if special[token]:
            words.append([place])
            part_of.append(parts)
            ended = True
        elif segment_begins or ended or recipe.masking == "token" or starts_word[token]:
            words.append([place])
            part_of.append(parts)
            ended = False
        else:
            words[-1].append(place)
    blocked = {place for place, token in enumerate(tokens) if special[token]}

    max_ngram = recipe.max_ngram if recipe.masking == "ngram" else 1
    order = sorted(range(len(words)), key=lambda w: (upper(splitmix64(key, WORDS + w)), w))
    widest = max((part_of.count(part) for part in set(part_of)), default=0)
    spans = []
    covered = set(blocked)
    left = budget

    def rest_of_part(start):
        return [w for w in range(start, len(words)) if part_of[w] == part_of[start]]

    def size_of_span(number):
        return min(draw_n(lower(splitmix64(key, SPANS + number)), max_ngram), widest)

    def size_of_start(start):
        return draw_n(lower(splitmix64(key, WORDS + start)), max_ngram)

    def try_span(start, n):
        """Place n words from `start`, or fewer if the budget is short; says whether that was possible."""
        nonlocal left
        following = rest_of_part(start)
        while n > 0 and sum(len(words[w]) for w in following[:n]) > left:
            n -= 1
        places = [place for w in following[:n] for place in words[w]]
        if not places or any(place in covered for place in places):
            return False
        covered.update(places)
        spans.append((places, min(n, len(following))))
        left -= len(places)
        return True

    if recipe.ngram_draw == "start":  # as released: n belongs to the word
        for start in order:
            if left:
                try_span(start, size_of_start(start))
    else:
        # n-grams are drawn as long as they fit the budget together, and each is put at the next word; ...
        waiting = []
        total = count = 0
        while count < len(order):
            n = size_of_span(count)
            following = rest_of_part(order[count])
            total += sum(len(words[w]) for w in following[:n])
            if total > budget:
                break
            if n > len(following) or not try_span(order[count], n):
                waiting.append(n)
            count += 1
        # ... those that found no place, and then further ones, are tried word by word until the budget is full.
        placed = 0
        for start in order[count:]:
            if not left:
                break
            n = waiting[placed] if placed < len(waiting) else size_of_span(count + placed - len(waiting))
            if n <= len(rest_of_part(start)) and try_span(start, n):
                placed += 1

    result = {}
    for places, _ in spans:
        for place in places:
            drawn_for = places[0] if recipe.replacement == "span" else place
            choice = upper(splitmix64(key, REPLACEMENTS + drawn_for))
            if choice < round(recipe.replace_with_mask * 2**32):
                seen = mask_id
            elif choice < round((recipe.replace_with_mask + recipe.replace_with_random) * 2**32):
                bits = upper(splitmix64(key, RANDOM_TOKENS + place))
                seen = int(replacements[bits * len(replacements) >> 32])
            else:
                seen = tokens[place]
            result[place] = (tokens[place], seen)
    return result, sorted((places[0], n) for places, n in spans)
