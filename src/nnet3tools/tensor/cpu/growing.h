/* Shared by the C files of decoding/native, chain/native and graph/native: arrays that grow, and results of functions. */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2") /* branches and look-ups: a third faster here than with the flags for formulas */
#endif

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Functions return FAILED if there is no memory; nothing else can fail, because callers check their
   arrays. Every caller returns FAILED as well, and one function at the top frees all memory. */
enum { FAILED = -1, NO = 0, YES = 1 };

typedef struct { void *data; int64_t size, capacity; size_t each; } growing;

/* The address of room for `more` elements after the end, or NULL. */
static inline void *room(growing *a, int64_t more) {
  if (a->size + more > a->capacity) {
    int64_t wanted = a->capacity ? a->capacity : 64;
    while (wanted < a->size + more) wanted *= 2;
    void *data = realloc(a->data, (size_t)wanted * a->each);
    if (!data) return NULL;
    a->data = data;
    a->capacity = wanted;
  }
  return (char *)a->data + (size_t)a->size * a->each;
}

/* Append `more` elements; the address of the first of them, or NULL. */
static inline void *added(growing *a, int64_t more) {
  void *place = room(a, more);
  if (place) a->size += more;
  return place;
}

static uint64_t mixed(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15ull;
  return x ^ (x >> 29);
}

static int64_t power_of_two(int64_t least) {
  int64_t size = 64;
  while (size < least) size *= 2;
  return size;
}

static int32_t *table_of(int64_t size) {
  int32_t *table = malloc((size_t)size * sizeof *table);
  if (table) memset(table, 0xff, (size_t)size * sizeof *table); /* -1: an empty slot */
  return table;
}
