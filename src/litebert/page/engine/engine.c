// The encoder of an ALBERT or BERT as WebAssembly, one sequence at a time. engine.js loads the weights and calls it.
//
//   tools/engine.py builds it twice: engine.wasm with the SIMD that every browser has, engine-relaxed.wasm with relaxed
//   SIMD, whose product of 8-bit numbers is one instruction of the CPU. Both add up the same whole numbers.
//
// Shapes: S tokens, H hidden, I inner size of the feed-forward block, A heads, D = H / A, K inputs and N outputs of a
// matrix, L applications.
//
// Threads share the memory. Each runs the same function with its own number and takes its part: columns of a product, heads
// of the attention, rows of everything else; between them they meet. No C library: a browser has none.
#include <stdint.h>

#include "four_floats.h"
#include "threads.h"

// Browsers compile a function well once it has been called often, and go on with the quick first compilation inside a call
// that lasts. So what takes time is called, not inlined.
#define APART __attribute__((noinline))
#define WIDE 8  // columns of a panel: matrices are multiplied panel by panel
#define TALL 6  // rows at a time
#define QUERIES 32  // queries of one piece of the attention
#define MOST 1024  // applications

typedef struct {
  int32_t k, n;
  int32_t bytes;     // 1: in 8 bits, with a scale for each output; 0: in floats
  int32_t row_size;  // K, up to a multiple of 4
  int8_t *panels;    // [N / 8, K, 8], in the order that the product reads
  float *floats;     // [N / 8, K, 8]
  float *scale;      // [N]
  float *bias;       // [N]
  float *smoothing;  // [K] to multiply inputs with, or 0
  int32_t *start;    // [N]: takes back what the zero point of the inputs adds
} Matrix;

typedef struct { float *weight, *bias; } Norm;
typedef struct { Matrix *qkv, *output; Norm norm; } Attention;
typedef struct { Matrix *input, *output; Norm norm; } FeedForward;

// ---------------------------------------------------------------------------------------------------------------------
// 8 bits: a row of inputs by its own range, a matrix by a scale for each output

#ifdef RELAXED
// The second operand of the relaxed product is of 7 bits by the specification. With 8, CPUs with such an instruction take
// it as unsigned (x86) or signed (ARM), and only those without one lose something: `probe` tells.
typedef uint8_t Small;
static int32_t zero_point;
#define STEP 4  // inputs beside each other in a panel
#else
typedef int16_t Small;
#define zero_point 0
#define STEP 2
#endif

/** 1 if the products of this CPU are exact with inputs of 8 bits, and 0 if this build must not be used. */
EXPORT(probe) int probe(void) {
#ifdef RELAXED
  volatile int8_t values[3] = {-128, -1, 127};  // unknown to the compiler
  v128_t zero = wasm_i32x4_splat(0), low = wasm_i8x16_splat(values[0]), last = wasm_i8x16_splat(values[1]);
  v128_t high = wasm_i8x16_splat(values[2]);
  int a = wasm_i32x4_extract_lane(wasm_i32x4_relaxed_dot_i8x16_i7x16_add(low, last, zero), 0);
  int b = wasm_i32x4_extract_lane(wasm_i32x4_relaxed_dot_i8x16_i7x16_add(high, low, zero), 0);
  if (a == 4 * -128 * 255 && b == 4 * 127 * 128) zero_point = 128;
  else if (a == 4 * 128 && b == 4 * 127 * -128) zero_point = 0;
  else return 0;
#endif
  return 1;
}

static inline int8_t *place(Matrix *m, int k, int n) {
  return m->panels + (n / WIDE * m->row_size + k / STEP * STEP) * WIDE + n % WIDE * STEP + k % STEP;
}

static inline void put(Matrix *m, int k, int n, int value) {
  *place(m, k, n) = value;
  m->start[n] -= zero_point * value;
}

/** A matrix to be filled: in floats [K, N], or in 8 bits by one of the functions below. */
EXPORT(new_matrix) Matrix *new_matrix(int k, int n, int bytes) {
  Matrix *m = allocate(sizeof(Matrix));
  int width = round_up(n, WIDE), row_size = round_up(k, 4);
  if (!m) return 0;
  *m = (Matrix){k, n, bytes, row_size, 0, 0, 0, 0, 0, 0};
  m->bias = allocate(4 * width);
  if (!m->bias) return 0;
  if (bytes) {
    m->panels = allocate(row_size * width);
    m->scale = allocate(4 * width);
    m->start = allocate(4 * width);
    if (!m->panels || !m->scale || !m->start) return 0;
    for (int i = 0; i < width; i++) m->bias[i] = m->scale[i] = m->start[i] = 0;
    for (int i = 0; i < row_size * width; i++) m->panels[i] = 0;
  } else {
    m->floats = allocate(4 * k * width);
    if (!m->floats) return 0;
    for (int i = 0; i < width; i++) m->bias[i] = 0;
    for (int i = 0; i < k * width; i++) m->floats[i] = 0;
  }
  return m;
}

static inline float *float_place(Matrix *m, int k, int n) { return m->floats + (n / WIDE * m->k + k) * WIDE + n % WIDE; }

/** Fill it from floats: [K, N], or [N, K] if `turned`. */
EXPORT(fill_floats) void fill_floats(Matrix *m, const float *values, int turned) {
  for (int n = 0; n < m->n; n++)
    for (int k = 0; k < m->k; k++) *float_place(m, k, n) = turned ? values[n * m->k + k] : values[k * m->n + n];
}

/** From 8 bits: [K, N], or [N, K] if `turned`. */
EXPORT(fill_eight) void fill_eight(Matrix *m, const int8_t *values, int turned) {
  for (int n = 0; n < m->n; n++)
    for (int k = 0; k < m->k; k++) put(m, k, n, turned ? values[n * m->k + k] : values[k * m->n + n]);
}

/** From 4 bits [K / 2, N], the first half of the inputs in the low ones, with steps [K / block, N] in eighths. */
EXPORT(fill_four) void fill_four(Matrix *m, const uint8_t *packed, const uint8_t *steps, int block) {
  int half = m->k / 2;
  for (int n = 0; n < m->n; n++)
    for (int k = 0; k < m->k; k++) {
      int both = packed[k % half * m->n + n];
      float exact = ((k < half ? both & 15 : both >> 4) - 8) * (steps[k / block * m->n + n] * 0.125f);
      put(m, k, n, most(-128, (int)__builtin_rintf(exact)));
    }
}

/** From 6 bits, turned: the low 4 of each half of the inputs [N, K / 2], and the high 2 of each quarter [N, K / 4]. */
EXPORT(fill_six) void fill_six(Matrix *m, const uint8_t *low, const uint8_t *high) {
  int half = m->k / 2, quarter = m->k / 4;
  for (int n = 0; n < m->n; n++)
    for (int k = 0; k < m->k; k++) {
      int four = low[n * half + k % half] >> (k < half ? 0 : 4) & 15;
      int two = high[n * quarter + k % quarter] >> (2 * (k / quarter)) & 3;
      put(m, k, n, four + 16 * two - 32);
    }
}

/** One row of inputs [K] as small numbers; returns what to multiply the products with. */
static APART float shrink(const Matrix *m, const float *x, Small *small) {
  int k = 0, whole = m->k & ~7;
  float largest = 1e-12f;
  const float *smoothing = m->smoothing;
  v128_t high = all(largest);
  for (; k < whole; k += 4) {
    v128_t value = wasm_v128_load(x + k);
    if (smoothing) value = mul(value, wasm_v128_load(smoothing + k));
    high = wasm_f32x4_pmax(high, wasm_f32x4_abs(value));
  }
  largest = largest_of(high);
  for (; k < m->k; k++) {
    float value = __builtin_fabsf(smoothing ? x[k] * smoothing[k] : x[k]);
    if (value > largest) largest = value;
  }
  float by = 127 / largest;
  v128_t many = all(by), zero = wasm_i16x8_splat(zero_point), none = all(WHOLE);
  for (k = 0; k < whole; k += 8) {
    v128_t a = wasm_v128_load(x + k), b = wasm_v128_load(x + k + 4);
    if (smoothing) {
      a = mul(a, wasm_v128_load(smoothing + k));
      b = mul(b, wasm_v128_load(smoothing + k + 4));
    }
    a = wasm_i32x4_sub(whole_bits(mul(a, many)), none);
    b = wasm_i32x4_sub(whole_bits(mul(b, many)), none);
    v128_t both = wasm_i16x8_add(wasm_i16x8_narrow_i32x4(a, b), zero);
#ifdef RELAXED
    v128_t bytes = wasm_i8x16_shuffle(both, both, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
    wasm_v128_store64_lane(small + k, bytes, 0);
#else
    wasm_v128_store(small + k, both);
#endif
  }
  for (; k < m->k; k++) small[k] = (Small)((int)__builtin_rintf((smoothing ? x[k] * smoothing[k] : x[k]) * by) + zero_point);
  for (; k < m->row_size; k++) small[k] = 0;
  return largest / 127;
}

/** `rows` rows and a panel: y [rows, 8] in whole numbers. */
#define PANEL(rows)                                                                                              \
  static APART void panel_##rows(int k, const Small *x, const int8_t *w, const int32_t *start, v128_t y[rows][2]) {    \
    v128_t sum[rows][2];                                                                                         \
    for (int r = 0; r < rows; r++)                                                                               \
      for (int c = 0; c < 2; c++) sum[r][c] = wasm_v128_load(start + 4 * c);                                     \
    _Pragma("clang loop unroll_count(4)") /* a tenth faster */                                                   \
    for (int i = 0; i < k; i += STEP, w += STEP * WIDE) {                                                        \
      v128_t first = LOAD(w), second = LOAD(w + 4 * STEP);                                                       \
      for (int r = 0; r < rows; r++) {                                                                           \
        v128_t value = wasm_v128_load32_splat(x + r * k + i);                                                    \
        sum[r][0] = DOT(first, value, sum[r][0]);                                                                \
        sum[r][1] = DOT(second, value, sum[r][1]);                                                               \
      }                                                                                                          \
    }                                                                                                            \
    for (int r = 0; r < rows; r++)                                                                               \
      for (int c = 0; c < 2; c++) y[r][c] = sum[r][c];                                                           \
  }
#ifdef RELAXED
#define LOAD(w) wasm_v128_load(w)
#define DOT(w, x, sum) wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w, x, sum)
#else
#define LOAD(w) wasm_i16x8_load8x8(w)
#define DOT(w, x, sum) wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w, x))
#endif
PANEL(1)
PANEL(2)
PANEL(3)
PANEL(4)
PANEL(5)
PANEL(6)

/** Some columns of a product in 8 bits: x [rows, K] with a scale for each row -> y [rows, N]. */
static APART void product_small(const Matrix *m, const Small *x, const float *scale, int rows, float *y, Activation kind, Part part) {
  int blocks = (rows + TALL - 1) / TALL;
  v128_t sums[TALL][2];
  for (int n = part.begin; n < part.end; n += WIDE) {
    const int8_t *w = m->panels + n * m->row_size;
    v128_t of_column[2] = {wasm_v128_load(m->scale + n), wasm_v128_load(m->scale + n + 4)};
    v128_t bias[2] = {wasm_v128_load(m->bias + n), wasm_v128_load(m->bias + n + 4)};
    for (int block = 0; block < blocks; block++) {  // of about the same height
      int begin = rows * block / blocks, height = rows * (block + 1) / blocks - begin;
      const Small *from = x + begin * m->row_size;
      if (height == 6) panel_6(m->row_size, from, w, m->start + n, sums);
      else if (height == 5) panel_5(m->row_size, from, w, m->start + n, sums);
      else if (height == 4) panel_4(m->row_size, from, w, m->start + n, sums);
      else if (height == 3) panel_3(m->row_size, from, w, m->start + n, sums);
      else if (height == 2) panel_2(m->row_size, from, w, m->start + n, sums);
      else panel_1(m->row_size, from, w, m->start + n, sums);
      for (int r = 0; r < height; r++) {
        float *to = y + (begin + r) * m->n + n;
        v128_t of_row = all(scale[begin + r]), out[2];
        for (int c = 0; c < 2; c++)
          out[c] = activate(mul_add(wasm_f32x4_convert_i32x4(sums[r][c]), mul(of_column[c], of_row), bias[c]), kind);
        if (n + WIDE <= m->n) {
          wasm_v128_store(to, out[0]);
          wasm_v128_store(to + 4, out[1]);
        } else {
          for (int i = 0; n + i < m->n; i++) to[i] = ((float *)out)[i];
        }
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Floats

/** y [rows, begin..end] = x [rows, K] @ w [K, N] + bias, any distances between rows. */
static APART void product_floats(int rows, int k, const float *x, int x_row, const float *w, int w_row, const float *bias, float *y,
                           int y_row, Activation kind, Part part) {
  int n = part.begin;
  for (; n + WIDE <= part.end; n += WIDE)
    for (int r = 0; r < rows; r += 4) {
      int height = least(4, rows - r);
      v128_t sum[4][2];
      for (int i = 0; i < 4; i++)
        for (int c = 0; c < 2; c++) sum[i][c] = bias ? wasm_v128_load(bias + n + 4 * c) : all(0.0f);
      const float *from[4];
      for (int i = 0; i < 4; i++) from[i] = x + (r + least(i, height - 1)) * x_row;
      for (int j = 0; j < k; j++) {
        v128_t first = wasm_v128_load(w + j * w_row + n), second = wasm_v128_load(w + j * w_row + n + 4);
        for (int i = 0; i < 4; i++) {
          v128_t value = wasm_v128_load32_splat(from[i] + j);
          sum[i][0] = mul_add(first, value, sum[i][0]);
          sum[i][1] = mul_add(second, value, sum[i][1]);
        }
      }
      for (int i = 0; i < height; i++)
        for (int c = 0; c < 2; c++) wasm_v128_store(y + (r + i) * y_row + n + 4 * c, activate(sum[i][c], kind));
    }
  for (; n < part.end; n++)
    for (int r = 0; r < rows; r++) {
      float sum = bias ? bias[n] : 0;
      for (int j = 0; j < k; j++) sum += x[r * x_row + j] * w[j * w_row + n];
      y[r * y_row + n] = wasm_f32x4_extract_lane(activate(all(sum), kind), 0);
    }
}

/** Some rows: y = LayerNorm(y + x) (x may be 0), by the mean and then the variance. */
static APART void normalize(float *y, const float *x, int width, Norm norm, float epsilon, Part rows) {
  for (int r = rows.begin; r < rows.end; r++) {
    float *row = y + r * width;
    const float *other = x ? x + r * width : 0;
    v128_t sums = all(0.0f);
    float sum = 0, squares = 0;
    int i = 0, whole = width & ~3;
    for (; i < whole; i += 4) {
      v128_t value = wasm_v128_load(row + i);
      if (other) wasm_v128_store(row + i, value = plus(value, wasm_v128_load(other + i)));
      sums = plus(sums, value);
    }
    for (; i < width; i++) sum += row[i] += other ? other[i] : 0;
    float mean = (sum + sum_of(sums)) / width;
    sums = all(0.0f);
    for (i = 0; i < whole; i += 4) {
      v128_t value = wasm_f32x4_sub(wasm_v128_load(row + i), all(mean));
      sums = mul_add(value, value, sums);
    }
    for (; i < width; i++) squares += (row[i] - mean) * (row[i] - mean);
    float by = 1 / __builtin_sqrtf((squares + sum_of(sums)) / width + epsilon);
    for (i = 0; i < whole; i += 4) {
      v128_t value = mul(wasm_f32x4_sub(wasm_v128_load(row + i), all(mean)), all(by));
      wasm_v128_store(row + i, mul_add(value, wasm_v128_load(norm.weight + i), wasm_v128_load(norm.bias + i)));
    }
    for (; i < width; i++) row[i] = (row[i] - mean) * by * norm.weight[i] + norm.bias[i];
  }
}

/** Some rows of logits [rows, of size `stride`]: softmax over the first `size`. */
static APART void softmax(float *logits, int rows, int size, int stride) {
  for (int r = 0; r < rows; r++) {
    float *row = logits + r * stride;
    for (int i = size; i < stride; i++) row[i] = -1e30f;
    v128_t high = wasm_v128_load(row), sums = all(0.0f);
    for (int i = 4; i < stride; i += 4) high = wasm_f32x4_pmax(high, wasm_v128_load(row + i));
    high = all(largest_of(high));
    for (int i = 0; i < stride; i += 4) {
      v128_t value = exponential(wasm_f32x4_sub(wasm_v128_load(row + i), high));
      wasm_v128_store(row + i, value);
      sums = plus(sums, value);
    }
    v128_t by = all(1 / sum_of(sums));
    for (int i = 0; i < stride; i += 4) wasm_v128_store(row + i, mul(wasm_v128_load(row + i), by));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The encoder

static struct {
  int hidden_size, heads, applications;
  Activation activation;
  float epsilon;
  Attention *attention[MOST];
  FeedForward *ffn[MOST];
} model;

// What a sequence needs. `shown`: of how many tokens the attention maps and states are kept, for pictures.
static struct {
  int tokens, room, shown, begin, end;  // applications of the job: from `begin` to before `end`
  float *hidden;      // [S, H]
  float *joined;      // [S, 3 H]: query, key, value
  float *inner;       // [S, I]
  float *output;      // [S, H]
  Small *small;       // [S, the largest K]
  float *scale;       // [S]
  float *scratch;     // each thread: keys [D, S], values [S, D], logits [QUERIES, S]
  int scratch_size;
  float *maps;        // [L, A, shown, shown]
  float *states;      // [L + 1, shown, H]
} work;

EXPORT(set_model) void set_model(int hidden_size, int heads, Activation activation, float epsilon) {
  model.hidden_size = hidden_size;
  model.heads = heads;
  model.activation = activation;
  model.epsilon = epsilon;
}

EXPORT(new_attention) Attention *new_attention(Matrix *qkv, Matrix *output, float *weight, float *bias) {
  Attention *block = allocate(sizeof(Attention));
  if (block) *block = (Attention){qkv, output, {weight, bias}};
  return block;
}

EXPORT(new_ffn) FeedForward *new_ffn(Matrix *input, Matrix *output, float *weight, float *bias) {
  FeedForward *block = allocate(sizeof(FeedForward));
  if (block) *block = (FeedForward){input, output, {weight, bias}};
  return block;
}

/** One more application of two blocks; 0 if there are too many. */
EXPORT(apply) int apply(Attention *attention, FeedForward *ffn) {
  if (model.applications == MOST) return 0;
  model.attention[model.applications] = attention;
  model.ffn[model.applications++] = ffn;
  return 1;
}

EXPORT(set_threads) void set_threads(int count) { threads = count; }

/** Room for sequences of up to `tokens` tokens; `widest` is the largest K, `inner` the largest I. 0: no memory. */
EXPORT(reserve) int reserve(int tokens, int widest, int inner, int shown) {
  int width = model.hidden_size, size = round_up(tokens, WIDE);
  work.room = tokens;
  work.scratch_size = (2 * (width / model.heads) + QUERIES) * size;
  work.hidden = allocate(4 * tokens * width);
  work.joined = allocate(12 * tokens * width);
  work.inner = allocate(4 * tokens * inner);
  work.output = allocate(4 * tokens * width);
  work.small = allocate(sizeof(Small) * tokens * round_up(widest, 4));
  work.scale = allocate(4 * tokens);
  work.scratch = allocate(4 * threads * work.scratch_size);
  work.maps = allocate(4 * model.applications * model.heads * shown * shown);
  work.states = allocate(4 * (model.applications + 1) * shown * width);
  return work.hidden && work.joined && work.inner && work.output && work.small && work.scale && work.scratch && work.maps && work.states;
}

EXPORT(hidden) float *hidden(void) { return work.hidden; }
EXPORT(maps) float *maps(void) { return work.maps; }
EXPORT(states) float *states(void) { return work.states; }

/** x [rows, K] as small numbers, a thread's part of the rows. */
static void shrink_rows(const Matrix *m, const float *x, int rows, int thread) {
  if (!m->bytes) return;
  Part part = part_of(rows, 1, thread);
  for (int r = part.begin; r < part.end; r++) work.scale[r] = shrink(m, x + r * m->k, work.small + r * m->row_size);
}

/** x [rows, K], shrunk already if the matrix is in 8 bits -> y [rows, N], a thread's part of the columns. */
static void multiply(const Matrix *m, const float *x, int rows, float *y, Activation kind, int thread) {
  Part part = part_of(m->n, WIDE, thread);
  if (m->bytes) product_small(m, work.small, work.scale, rows, y, kind, part);
  else
    for (int n = part.begin; n < part.end; n += WIDE)
      product_floats(rows, m->k, x, m->k, m->floats + n * m->k, WIDE, m->bias + n, y + n, m->n, kind, (Part){0, least(WIDE, m->n - n)});
}

/** Where each head looks, and what it brings: joined [S, 3 H] -> output [S, H], a thread's part of heads and queries. */
static APART void attend(int application, int thread) {
  int count = work.tokens, width = model.hidden_size, size = width / model.heads, stride = round_up(count, WIDE);
  int pieces = (count + QUERIES - 1) / QUERIES, known = -1;
  float *keys = work.scratch + thread * work.scratch_size, *values = keys + size * stride, *logits = values + size * stride;
  Part part = part_of(model.heads * pieces, 1, thread);
  for (int i = part.begin; i < part.end; i++) {
    int head = i / pieces, begin = i % pieces * QUERIES, rows = least(QUERIES, count - begin);
    const float *from = work.joined + head * size;
    if (head != known)  // of the head alone, keys turned round: the products read neighbours
      for (int j = 0; j < stride; j++)
        for (int d = 0; d < size; d++) {
          keys[d * stride + j] = j < count ? from[j * 3 * width + width + d] : 0;
          values[j * size + d] = j < count ? from[j * 3 * width + 2 * width + d] : 0;
        }
    known = head;
    product_floats(rows, size, from + begin * 3 * width, 3 * width, keys, stride, 0, logits, stride, NONE, (Part){0, stride});
    softmax(logits, rows, count, stride);
    product_floats(rows, count, logits, stride, values, size, 0, work.output + begin * width + head * size, width,
                   NONE, (Part){0, size});
    float *map = work.maps + (application * model.heads + head) * work.shown * work.shown;
    for (int r = begin; r < least(begin + rows, work.shown); r++)
      for (int s = 0; s < work.shown; s++) map[r * work.shown + s] = logits[(r - begin) * stride + s];
  }
}

static void keep_states(int application, int thread) {
  int width = model.hidden_size;
  Part part = part_of(work.tokens, 1, thread);
  float *to = work.states + application * work.shown * width;
  for (int i = part.begin * width; i < least(part.end, work.shown) * width; i++) to[i] = work.hidden[i];
}

static void encode(int thread) {
  int count = work.tokens, width = model.hidden_size;
  Part mine = part_of(count, 1, thread);
  if (!work.begin) keep_states(0, thread);
  for (int i = work.begin; i < work.end; i++) {
    const Attention *attention = model.attention[i];
    const FeedForward *ffn = model.ffn[i];
    shrink_rows(attention->qkv, work.hidden, count, thread);
    meet();
    multiply(attention->qkv, work.hidden, count, work.joined, NONE, thread);
    meet();
    attend(i, thread);
    meet();
    shrink_rows(attention->output, work.output, count, thread);
    meet();
    multiply(attention->output, work.output, count, work.joined, NONE, thread);
    meet();
    normalize(work.hidden, work.joined, width, attention->norm, model.epsilon, mine);
    shrink_rows(ffn->input, work.hidden, count, thread);
    meet();
    multiply(ffn->input, work.hidden, count, work.inner, model.activation, thread);
    meet();
    shrink_rows(ffn->output, work.inner, count, thread);
    meet();
    multiply(ffn->output, work.inner, count, work.output, NONE, thread);
    meet();
    normalize(work.hidden, work.output, width, ffn->norm, model.epsilon, mine);
    keep_states(i + 1, thread);
  }
}

/** A linear layer by itself: x [rows, K] -> y [rows, N]. */
static void linear(const Matrix *m, const float *x, int rows, float *y, Activation kind, int thread) {
  shrink_rows(m, x, rows, thread);
  meet();
  multiply(m, x, rows, y, kind, thread);
}

// ---------------------------------------------------------------------------------------------------------------------
// Jobs

enum { ENCODE, LINEAR };

static void take_part(int thread) {
  if (job[0] == ENCODE) encode(thread);
  else linear((const Matrix *)job[1], (const float *)job[2], job[3], (float *)job[4], (Activation)job[5], thread);
  meet();
}

static void run_job(void) {
  if (threads > 1) advance(&jobs);
  take_part(0);
}

/** hidden [S, H] through some applications, the first being 0, in place. */
EXPORT(run_encoder) void run_encoder(int tokens, int shown, int begin, int end) {
  work.tokens = tokens;
  work.shown = least(shown, tokens);
  work.begin = begin;
  work.end = end;
  job[0] = ENCODE;
  run_job();
}

/** x [rows, K] -> y [rows, N]; rows: as many as there is room for tokens, at most. */
EXPORT(run_linear) void run_linear(const Matrix *m, const float *x, int rows, float *y, Activation kind) {
  job[0] = LINEAR;
  job[1] = (int32_t)m;
  job[2] = (int32_t)x;
  job[3] = rows;
  job[4] = (int32_t)y;
  job[5] = kind;
  run_job();
}

EXPORT(run_norm) void run_norm(float *x, int rows, int width, float *weight, float *bias) {
  normalize(x, 0, width, (Norm){weight, bias}, model.epsilon, (Part){0, rows});
}

/** Row `n` of a table of words, which is the matrix [K, N] of the words' logits: y [K]. */
EXPORT(look_up) void look_up(Matrix *m, int n, float *y) {
  for (int k = 0; k < m->k; k++) y[k] = m->bytes ? *place(m, k, n) * m->scale[n] : *float_place(m, k, n);
}

/** The other threads live here: one job after another, for ever. */
EXPORT(serve) void serve(int thread) {
  for (int32_t known = 0;; known++) {
    await_change(&jobs, known);
    take_part(thread);
  }
}

EXPORT(set_bias) void set_bias(Matrix *m, const float *bias) { for (int i = 0; i < m->n; i++) m->bias[i] = bias[i]; }
EXPORT(set_scale) void set_scale(Matrix *m, const float *scale) { for (int i = 0; i < m->n; i++) m->scale[i] = scale[i]; }
EXPORT(set_smoothing) void set_smoothing(Matrix *m, float *smoothing) { m->smoothing = smoothing; }
