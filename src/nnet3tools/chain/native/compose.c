/* Composition of epsilon-free acceptors with one whose arcs are sorted by label, as fst/compose.py does it. */

typedef struct { int32_t one, other; } pair;
typedef struct { growing pairs, table; int64_t table_size; fst whole; } compose_work;

static int64_t slot_of_pair(const compose_work *w, pair p) {
  const int32_t *table = w->table.data;
  const pair *pairs = w->pairs.data;
  int64_t slot = (int64_t)(mixed((uint64_t)(uint32_t)p.one << 32 | (uint32_t)p.other) & (uint64_t)(w->table_size - 1));
  for (; table[slot] >= 0; slot = (slot + 1) & (w->table_size - 1)) {
    if (pairs[table[slot]].one == p.one && pairs[table[slot]].other == p.other) break;
  }
  return slot;
}

/* The number of a pair of states, a new one if need be; -1 for want of memory. */
static int64_t number_of_pair(compose_work *w, pair p) {
  if (2 * w->pairs.size >= w->table_size) {
    int64_t size = power_of_two(4 * (w->pairs.size + 1));
    int32_t *table = values(&w->table, size, sizeof *table);
    if (!table) return -1;
    memset(table, 0xff, (size_t)size * sizeof *table);
    w->table_size = size;
    for (int64_t i = 0; i < w->pairs.size; i++) table[slot_of_pair(w, ((pair *)w->pairs.data)[i])] = (int32_t)i;
  }
  int32_t *place = (int32_t *)w->table.data + slot_of_pair(w, p);
  if (*place >= 0) return *place;
  pair *new = added(&w->pairs, 1);
  if (!new) return -1;
  *new = p;
  return *place = (int32_t)(w->pairs.size - 1);
}

/* The first of a state's sorted arcs that has this label or a larger one. */
static int64_t find_label(const fst *f, int64_t state, int32_t label) {
  int64_t low = first_of(f)[state], high = first_of(f)[state + 1];
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (arcs_of(f)[middle].ilabel < label) low = middle + 1;
    else high = middle;
  }
  return low;
}

static int add_matches(compose_work *w, const fst *second, arc a, int32_t other) {
  for (int64_t b = find_label(second, other, a.ilabel); b < first_of(second)[other + 1]; b++) {
    const arc *match = arcs_of(second) + b;
    if (match->ilabel != a.ilabel) break;
    float weight = a.weight + match->weight;
    int64_t number = number_of_pair(w, (pair){a.target, match->target});
    if (number < 0 || !isfinite(weight) || !add_arc(&w->whole, a.ilabel, a.ilabel, weight, number)) return NO;
  }
  return YES;
}

/* The connected composition. */
static int compose(compose_work *w, const fst *first, const fst *second, fst *out, walks *walk) {
  if (!num_states(first)) return begin_fst(out, NO_STATE);
  w->pairs.size = w->table_size = 0;
  w->pairs.each = sizeof(pair);
  if (!begin_fst(&w->whole, 0) || number_of_pair(w, (pair){(int32_t)first->start, (int32_t)second->start}) < 0) return NO;
  for (int64_t i = 0; i < w->pairs.size; i++) { /* which grow */
    pair p = ((pair *)w->pairs.data)[i];
    for (int64_t a = first_of(first)[p.one]; a < first_of(first)[p.one + 1]; a++) {
      if (!add_matches(w, second, arcs_of(first)[a], p.other)) return NO;
    }
    if (!end_state(&w->whole, finals_of(first)[p.one] + finals_of(second)[p.other])) return NO;
  }
  return connect(&w->whole, out, walk);
}
