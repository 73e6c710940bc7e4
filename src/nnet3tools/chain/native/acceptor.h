/* FSTs that are built state by state, from OpenFst's binary forms, and what part of them is of use.

   Functions return NO where they leave an FST to the Python modules: for want of memory, and for what
   is rare (infinite weights, chains of epsilons, errors that are to be told). */

enum { EPSILON = 0, NO_STATE = -1, NOT_AN_ARC = -1 };

typedef struct { int32_t ilabel, olabel; float weight; int32_t target; } arc;

typedef struct {
  int64_t start;
  growing finals; /* float: infinite where a state is not final */
  growing first;  /* int64_t: where each state's arcs begin, and where the last one's end */
  growing arcs;
} fst;

static int64_t num_states(const fst *f) { return f->finals.size; }
static float *finals_of(const fst *f) { return f->finals.data; }
static int64_t *first_of(const fst *f) { return f->first.data; }
static arc *arcs_of(const fst *f) { return f->arcs.data; }

static int begin_fst(fst *f, int64_t start) {
  f->start = start;
  f->finals.size = f->first.size = f->arcs.size = 0;
  f->finals.each = sizeof(float);
  f->first.each = sizeof(int64_t);
  f->arcs.each = sizeof(arc);
  int64_t *first = added(&f->first, 1);
  if (!first) return NO;
  *first = 0;
  return YES;
}

static int add_arc(fst *f, int32_t ilabel, int32_t olabel, float weight, int64_t target) {
  arc *place = added(&f->arcs, 1);
  if (!place) return NO;
  *place = (arc){ilabel, olabel, weight, (int32_t)target};
  return YES;
}

/* The arcs added since the last call are those of the next state. */
static int end_state(fst *f, float final) {
  float *of_state = added(&f->finals, 1);
  int64_t *first = added(&f->first, 1);
  if (!of_state || !first) return NO;
  *of_state = final;
  *first = f->arcs.size;
  return YES;
}

static void free_fst(fst *f) {
  free(f->finals.data);
  free(f->first.data);
  free(f->arcs.data);
}

/* Room for `count` values of `each` bytes, whose contents are those of the last use. */
static void *values(growing *g, int64_t count, size_t each) {
  g->size = 0;
  g->each = 1;
  return room(g, (count + 1) * (int64_t)each);
}

static void *zeros(growing *g, int64_t count, size_t each) {
  void *place = values(g, count, each);
  if (place) memset(place, 0, (size_t)count * each);
  return place;
}

/* The order in which acceptors are read leaves no doubt of their bytes: Python has walked over them. */
typedef struct { int32_t label; float weight; int32_t target; } element;

static int32_t int_at(const uint8_t *data) { int32_t value; memcpy(&value, data, 4); return value; }
static int64_t long_at(const uint8_t *data) { int64_t value; memcpy(&value, data, 8); return value; }
static float float_at(const uint8_t *data) { float value; memcpy(&value, data, 4); return value; }

enum { COMPACT_NAMES = 4 + 4 + 16 + 4 + 8, VECTOR_NAMES = 4 + 4 + 6 + 4 + 8 };

static int64_t start_of_compact(const uint8_t *data) { return long_at(data + COMPACT_NAMES + 16); }

/* A compact_acceptor. Arcs of infinite weight are left to Python. */
static int read_compact(fst *f, const uint8_t *data) {
  if (!begin_fst(f, start_of_compact(data))) return NO;
  data += COMPACT_NAMES + 16;
  int64_t states = long_at(data + 8);
  const uint8_t *ends = data + 24, *elements = ends + 4 * (states + 1);
  for (int64_t s = 0; s < states; s++) {
    uint32_t at = (uint32_t)int_at(ends + 4 * s), end = (uint32_t)int_at(ends + 4 * (s + 1));
    float final = INFINITY;
    for (; at < end; at++) {
      element e;
      memcpy(&e, elements + (size_t)at * sizeof e, sizeof e);
      if (e.label == NOT_AN_ARC) final = e.weight;
      else if (!isfinite(e.weight) || !add_arc(f, e.label, e.label, e.weight, e.target)) return NO;
    }
    if (!end_state(f, final)) return NO;
  }
  return YES;
}

/* A vector file. */
static int read_vector(fst *f, const uint8_t *data) {
  data += VECTOR_NAMES + 16;
  int64_t states = long_at(data + 8);
  if (!begin_fst(f, long_at(data))) return NO;
  data += 24;
  for (int64_t s = 0; s < states; s++) {
    float final = float_at(data);
    int64_t count = long_at(data + 4);
    arc *arcs = added(&f->arcs, count);
    if (!arcs && count) return NO;
    if (count) memcpy(arcs, data + 12, (size_t)count * sizeof *arcs);
    for (int64_t a = 0; a < count; a++) {
      if (!isfinite(arcs[a].weight)) return NO;
    }
    if (!end_state(f, final)) return NO;
    data += 12 + count * (int64_t)sizeof *arcs;
  }
  return YES;
}

/* What walks over states keep from one to the next. */
typedef struct { growing from_start, to_end, first, neighbours, stack, numbers; } walks;

static void spread(const int64_t *first, const int32_t *neighbours, uint8_t *seen, int32_t *stack, int64_t waiting) {
  while (waiting) {
    int32_t s = stack[--waiting];
    for (int64_t a = first[s]; a < first[s + 1]; a++) {
      if (seen[neighbours[a]]) continue;
      seen[neighbours[a]] = 1;
      stack[waiting++] = neighbours[a];
    }
  }
}

/* For each state whether the start leads to it, and whether it leads to a final state. */
static int reach(const fst *f, walks *w) {
  int64_t size = num_states(f), count = f->arcs.size, waiting = 0;
  uint8_t *from_start = zeros(&w->from_start, size, 1), *to_end = zeros(&w->to_end, size, 1);
  int64_t *first = zeros(&w->first, size + 2, sizeof *first);
  int32_t *neighbours = values(&w->neighbours, count, sizeof *neighbours);
  int32_t *stack = values(&w->stack, size, sizeof *stack);
  if (!from_start || !to_end || !first || !neighbours || !stack) return NO;
  const arc *arcs = arcs_of(f);
  for (int64_t a = 0; a < count; a++) neighbours[a] = arcs[a].target;
  if (f->start >= 0) {
    from_start[f->start] = 1;
    stack[waiting++] = (int32_t)f->start;
  }
  spread(first_of(f), neighbours, from_start, stack, waiting);
  /* Backwards: the states before each one, counted first. */
  for (int64_t a = 0; a < count; a++) first[arcs[a].target + 2]++;
  for (int64_t s = 0; s < size; s++) first[s + 2] += first[s + 1];
  for (int64_t s = 0; s < size; s++) {
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) neighbours[first[arcs[a].target + 1]++] = (int32_t)s;
  }
  waiting = 0;
  for (int64_t s = 0; s < size; s++) {
    if (finals_of(f)[s] == INFINITY) continue;
    to_end[s] = 1;
    stack[waiting++] = (int32_t)s;
  }
  spread(first, neighbours, to_end, stack, waiting);
  return YES;
}

/* The states on some path from the start to a final state, in the order they have. */
static int connect(const fst *in, fst *out, walks *w) {
  if (!reach(in, w)) return NO;
  int64_t size = num_states(in), kept = 0;
  const uint8_t *from_start = w->from_start.data, *to_end = w->to_end.data;
  int32_t *numbers = values(&w->numbers, size, sizeof *numbers);
  if (!numbers) return NO;
  for (int64_t s = 0; s < size; s++) numbers[s] = from_start[s] && to_end[s] ? (int32_t)kept++ : NO_STATE;
  int64_t start = kept && in->start >= 0 ? numbers[in->start] : NO_STATE;
  if (!begin_fst(out, start)) return NO;
  for (int64_t s = 0; s < size && start >= 0; s++) {
    if (numbers[s] < 0) continue;
    for (int64_t a = first_of(in)[s]; a < first_of(in)[s + 1]; a++) {
      const arc *old = arcs_of(in) + a;
      int32_t target = numbers[old->target];
      if (target >= 0 && !add_arc(out, old->ilabel, old->olabel, old->weight, target)) return NO;
    }
    if (!end_state(out, finals_of(in)[s])) return NO;
  }
  return YES;
}
