// Arithmetic that abilities and exit rules share.
export function softmax(values) {
  const top = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Array.from(values, (value) => Math.exp(value - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((value) => value / sum);
}

export const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** The place of the largest value, the first of equal ones. */
export const best = (values) => values.reduce((top, value, i) => (value > values[top] ? i : top), 0);
