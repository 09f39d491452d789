// How many of a search's words each line has, as text/lexical.py counts them: BM25 as a share of the most it could be.
const SPACELESS = "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const LETTER = `(?:(?![${SPACELESS}])[\\p{L}\\p{N}\\p{M}_\\u00ad\\u200c\\u200d])`;
const WORD = new RegExp(`[${SPACELESS}]|${LETTER}+(?:['’]${LETTER}+)*|[^\\p{L}\\p{N}_\\s]`, "gu");
const GRAMS = [1, 2, 3]; // characters
const SHARE = 0.2; // of the letters: from here on, a script decides
const [K1, B] = [1.2, 0.75];
const LEXICAL = 0.6; // as Predictor.search

const split = (text) => text.toLowerCase().match(WORD) ?? [];

/** Pieces of each word with a space at both ends, in scripts whose words are not separate or carry particles. */
function grams(text) {
  return text.toLowerCase().split(/\s+/u).filter(Boolean).flatMap((word) => {
    const characters = [" ", ...word, " "];
    return GRAMS.flatMap((size) => characters.slice(size - 1).map((_, i) => characters.slice(i, i + size).join("")));
  });
}

/** For each line, how much of a query it has, between 0 and 1. */
export function sharedWords(query, lines) {
  const all = lines.join("");
  const letters = Math.max(1, (all.match(/\p{L}/gu) ?? []).length);
  const many = [`[${SPACELESS}]`, "[\\u1100-\\u11ff\\u3130-\\u318f\\uac00-\\ud7ff]"].some((script) => (all.match(new RegExp(script, "gu")) ?? []).length > SHARE * letters);
  const count = (text) => [...split(text).map((word) => `w${word}`), ...(many ? grams(text).map((part) => `c${part}`) : [])];
  const counts = lines.map((line) => {
    const found = new Map();
    for (const part of count(line)) found.set(part, (found.get(part) ?? 0) + 1);
    return found;
  });
  const lengths = counts.map((found) => [...found.values()].reduce((sum, value) => sum + value, 0));
  const mean = lengths.reduce((sum, value) => sum + value, 0) / lines.length || 1;
  const asked = count(query).map((part) => {
    const documents = counts.filter((found) => found.has(part)).length;
    return { part, rarity: Math.log(1 + (lines.length - documents + 0.5) / (documents + 0.5)) };
  });
  const most = (K1 + 1) * asked.reduce((sum, { rarity }) => sum + rarity, 0) || 1;
  return counts.map((found, i) => {
    const damping = K1 * (1 - B + (B * lengths[i]) / mean);
    return asked.reduce((sum, { part, rarity }) => sum + (rarity * (found.get(part) ?? 0) * (K1 + 1)) / ((found.get(part) ?? 0) + damping), 0) / most;
  });
}

/** The cosines of lines with a query, with its words weighed in. */
export function weigh(query, lines, cosines) {
  const shared = sharedWords(query, lines);
  return cosines.map((cosine, i) => (1 - LEXICAL) * cosine + LEXICAL * shared[i]);
}
