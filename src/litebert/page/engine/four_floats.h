// What is done to four floats at a time: e^x and the activations.
#pragma once
#include <wasm_simd128.h>

typedef enum { NONE, GELU, GELU_TANH, RELU } Activation;

static inline v128_t all(float value) { return wasm_f32x4_splat(value); }
static inline v128_t mul(v128_t a, v128_t b) { return wasm_f32x4_mul(a, b); }
static inline v128_t plus(v128_t a, v128_t b) { return wasm_f32x4_add(a, b); }
/** a * b + c */
static inline v128_t mul_add(v128_t a, v128_t b, v128_t c) {
#ifdef RELAXED
  return wasm_f32x4_relaxed_madd(a, b, c);
#else
  return wasm_f32x4_add(wasm_f32x4_mul(a, b), c);
#endif
}

static inline float sum_of(v128_t x) {
  x = plus(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(x, 0) + wasm_f32x4_extract_lane(x, 1);
}

static inline float largest_of(v128_t x) {
  x = wasm_f32x4_pmax(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(wasm_f32x4_pmax(x, wasm_i32x4_shuffle(x, x, 1, 0, 3, 2)), 0);
}

// Added to a float below 2^22, it leaves the nearest whole number in the lowest bits.
#define WHOLE 12582912.0f  // 1.5 * 2^23
static inline v128_t whole_bits(v128_t x) { return wasm_f32x4_add(x, all(WHOLE)); }

/** e^x = 2^n * 2^r with |r| <= 1/2, and Taylor's series for 2^r. */
static inline v128_t exponential(v128_t x) {
  x = wasm_f32x4_pmax(wasm_f32x4_pmin(mul(x, all(1.44269504f)), all(126.0f)), all(-126.0f));
  v128_t n = whole_bits(x), r = wasm_f32x4_sub(x, wasm_f32x4_sub(n, all(WHOLE)));
  v128_t y = mul_add(r, all(1.5403530e-4f), all(1.3333558e-3f));
  y = mul_add(y, r, all(9.6181291e-3f));
  y = mul_add(y, r, all(5.5504109e-2f));
  y = mul_add(y, r, all(0.24022651f));
  y = mul_add(y, r, all(0.69314718f));
  y = mul_add(y, r, all(1.0f));
  return wasm_i32x4_add(y, wasm_i32x4_shl(n, 23));  // n goes to the exponent
}

/** x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), with tanh by e^. */
static inline v128_t gelu_tanh(v128_t x) {
  v128_t inner = mul(mul(x, all(-1.5957691216f)), mul_add(mul(x, x), all(0.044715f), all(1.0f)));
  return wasm_f32x4_div(x, plus(all(1.0f), exponential(inner)));
}

/** x / 2 * (1 + erf(x / sqrt(2))), by Abramowitz and Stegun's 7.1.26. */
static inline v128_t gelu(v128_t x) {
  v128_t size = mul(wasm_f32x4_abs(x), all(0.70710678f));
  v128_t t = wasm_f32x4_div(all(1.0f), mul_add(size, all(0.3275911f), all(1.0f)));
  v128_t y = mul_add(t, all(1.061405429f), all(-1.453152027f));
  y = mul_add(y, t, all(1.421413741f));
  y = mul_add(y, t, all(-0.284496736f));
  y = mul(mul_add(y, t, all(0.254829592f)), t);
  v128_t tail = mul(mul(y, exponential(mul(size, wasm_f32x4_neg(size)))), all(0.5f));  // (1 - erf(|x| / sqrt(2))) / 2
  v128_t share = wasm_v128_bitselect(tail, wasm_f32x4_sub(all(1.0f), tail), wasm_f32x4_lt(x, all(0.0f)));
  return mul(x, share);
}

static inline v128_t activate(v128_t x, Activation kind) {
  if (kind == GELU_TANH) return gelu_tanh(x);
  if (kind == GELU) return gelu(x);
  if (kind == RELU) return wasm_f32x4_pmax(x, all(0.0f));
  return x;
}
