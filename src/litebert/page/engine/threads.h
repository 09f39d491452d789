// Memory for weights and sequences, and threads that share it.
#pragma once
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(#name)))
#define PAGE 65536
#define SPINS 4000  // looks at a counter before a thread sleeps

static inline int least(int a, int b) { return a < b ? a : b; }
static inline int most(int a, int b) { return a > b ? a : b; }
static inline int round_up(int value, int to) { return (value + to - 1) / to * to; }

// ---------------------------------------------------------------------------------------------------------------------
// Memory: weights first, then what a sequence needs; nothing is given back but the latter

extern uint8_t __heap_base;
static uint32_t top;

/** Room for some bytes, all zero if never used before; 0 if the memory cannot grow so far. */
EXPORT(allocate) void *allocate(uint32_t size) {
  uint32_t begin = round_up(top ? top : (uint32_t)&__heap_base, 64);
  uint64_t end = (uint64_t)begin + size;
  uint64_t has = (uint64_t)__builtin_wasm_memory_size(0) * PAGE;
  if (end > has && (end > 0xffff0000u || __builtin_wasm_memory_grow(0, (end - has + PAGE - 1) / PAGE) == -1ul)) return 0;
  top = (uint32_t)end;
  return (void *)begin;
}

EXPORT(mark) uint32_t mark(void) { return top; }
EXPORT(release) void release(uint32_t to) { top = to; }

// ---------------------------------------------------------------------------------------------------------------------
// Threads

static int32_t threads = 1, arrived, turn, asleep;
static int32_t jobs;    // how many were given out
static int32_t job[8];  // the latest: its kind and its arguments

static inline int32_t see(int32_t *value) { return __atomic_load_n(value, __ATOMIC_SEQ_CST); }

/** Wait until a counter is no longer at `old`: look for a moment, then sleep. */
static void await_change(int32_t *counter, int32_t old) {
  for (int i = 0; i < SPINS; i++) if (see(counter) != old) return;
  __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
  while (see(counter) == old) __builtin_wasm_memory_atomic_wait32(counter, old, -1);
  __atomic_sub_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
}

static void advance(int32_t *counter) {
  __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
  if (see(&asleep)) __builtin_wasm_memory_atomic_notify(counter, 0xffffffffu);
}

/** Every thread waits here for all others. */
static void meet(void) {
  if (threads == 1) return;
  int32_t now = see(&turn);
  if (__atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST) == threads) {
    __atomic_store_n(&arrived, 0, __ATOMIC_SEQ_CST);
    advance(&turn);
  } else {
    await_change(&turn, now);
  }
}

/** The part of `count` things that a thread takes, in whole groups of `size`: [begin, end). */
typedef struct { int begin, end; } Part;
static inline Part part_of(int count, int size, int thread) {
  int groups = (count + size - 1) / size;
  return (Part){least(count, groups * thread / threads * size), least(count, groups * (thread + 1) / threads * size)};
}
