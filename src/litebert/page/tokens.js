// Texts as the ids that Python's tokenizer gives, with places where an ability needs them. Characters are code points.
import { Trouble } from "./trouble.js";

/** Words as tagged corpora have them: punctuation is separate, "didn't" and "U.S" stay whole, an ideograph is a word. */
const HAN = "\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const LETTERS = `[[\\p{L}\\p{N}_]--[${HAN}]][[\\p{L}\\p{M}\\p{N}_]--[${HAN}]]*`;
const WORD = new RegExp(`${LETTERS}(?:[\\-'’.&]${LETTERS})*|(?:[${HAN}]|[^\\p{L}\\p{N}_\\s])\\p{M}*`, "gv");
const SPACE = "▁";

const length = (text) => [...text].length;
const withoutSpaces = (text) => text.replace(/\s/gu, "");

/** A piece as people read it: "▁paris" -> "paris", "##ing" -> "ing". */
export const readable = (piece) => piece.replace(/^▁/u, "").replace(/^##/u, "") || piece;

/** Where each word of a text begins and ends. */
export function wordSpans(text) {
  return spansOf(text, text.matchAll(WORD));
}

/** Where each sentence begins and ends, by the browser's own rules; a blank line always ends one. */
export function sentenceSpans(text, language) {
  const segmenter = new Intl.Segmenter(language, { granularity: "sentence" });
  const found = [];
  for (const paragraph of text.matchAll(/(?:(?!\n\s*\n)[^])+/gu)) {
    for (const { segment, index } of segmenter.segment(paragraph[0])) {
      const before = segment.length - segment.trimStart().length;
      if (segment.trim()) found.push({ index: paragraph.index + index + before, 0: segment.trim() });
    }
  }
  return spansOf(text, found);
}

/** Matches (in UTF-16 units, in order) as {start, end, text} in characters. */
function spansOf(text, matches) {
  const spans = [];
  let [unit, character] = [0, 0];
  for (const { index, 0: part } of matches) {
    character += length(text.slice(unit, index));
    unit = index;
    spans.push({ start: character, end: character + length(part), text: part });
  }
  return spans;
}

export class Tokens {
  /** `about` is page.json, `json` is tokenizer.json, `Tokenizer` the class of @huggingface/tokenizers. */
  constructor(Tokenizer, json, config, about) {
    const make = (specials) => new Tokenizer({ ...json, added_tokens: json.added_tokens.filter(({ content }) => specials.includes(content)) }, config);
    Object.assign(this, about.specials); // the ids cls and sep, and how the mask is spelled
    this.silent = new Set([...about.silent, SPACE]);
    this.tokenizer = make([this.mask]);
    this.makePlain = () => make([]); // [MASK] in a text is a mask for one ability only
    this.size = about.vocab_size;
  }

  piece(id) {
    return this.tokenizer.id_to_token(id);
  }

  /** The ids of a text that must hold at least one token. */
  encode(text, name = "text", { masks = false } = {}) {
    checkText(text, name);
    const ids = this.ids(text, masks);
    if (!ids.length) throw new Trouble(422, "invalid_input", `${name}: has no text that the vocabulary covers.`);
    return ids;
  }

  ids(text, masks = false) {
    if (masks || !text.includes(this.mask)) return this.tokenizer.encode(text, { add_special_tokens: false }).ids;
    this.plain ??= this.makePlain();
    return this.plain.encode(text, { add_special_tokens: false }).ids;
  }

  /** Tokens with places: [{id, start, end}], word by word, as the tokenizer itself never looks beyond a space. */
  places(text) {
    return spansOf(text, text.matchAll(/\S+/gu)).flatMap((word) => this.placesInWord(word));
  }

  placesInWord({ start, end, text }) {
    const { ids, tokens } = this.tokenizer.encode(text, { add_special_tokens: false });
    const sizes = tokens.map((token) => length(token.replaceAll(SPACE, "").replace(/^##/u, "")));
    // The length of each prefix of the word once it is normalised; if they do not add up, the place is the whole word.
    const characters = [...text];
    const normalized = characters.map((_, i) => this.normalizedLength(characters.slice(0, i + 1).join("")));
    const whole = sizes.reduce((a, b) => a + b, 0) !== normalized.at(-1);
    let at = 0;
    return ids.map((id, i) => {
      const from = at;
      at += sizes[i];
      if (whole) return { id, start, end };
      const first = normalized.findIndex((size) => size > from);
      return { id, start: start + (first < 0 ? characters.length : first), end: start + (sizes[i] ? normalized.findIndex((size) => size >= at) + 1 : Math.max(0, first)) };
    });
  }

  normalizedLength(text) {
    const { normalizer } = this.tokenizer;
    return length(withoutSpaces((normalizer ? normalizer(text) : text).replaceAll(SPACE, "")));
  }
}

export function checkText(text, name) {
  if (!text.trim()) throw new Trouble(422, "invalid_input", `${name}: is empty.`);
  if (!text.isWellFormed()) throw new Trouble(422, "invalid_input", `${name}: contains half of a surrogate pair.`);
}
