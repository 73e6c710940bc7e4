/* What OpenFst's compact files say of an acceptor, as fst/properties.py finds it, and the files. */

/* Bits of which the next one says that it is not so. */
enum {
  ACCEPTOR = 16, I_DETERMINISTIC = 18, O_DETERMINISTIC = 20, EPSILONS = 22, I_EPSILONS = 24, O_EPSILONS = 26,
  I_LABEL_SORTED = 28, O_LABEL_SORTED = 30, WEIGHTED = 32, CYCLIC = 34, INITIAL_CYCLIC = 36, TOP_SORTED = 38,
  ACCESSIBLE = 40, COACCESSIBLE = 42, STRING = 44, WEIGHTED_CYCLES = 46
};

static uint64_t bit(int property, int is_so) { return UINT64_C(1) << (property + !is_so); }

typedef struct { growing labels, low, entered, component, path, places, members; } property_work;

static int compared_labels(const void *a, const void *b) {
  int32_t one = *(const int32_t *)a, other = *(const int32_t *)b;
  return (one > other) - (one < other);
}

static int label_bits(property_work *w, const fst *f, uint64_t *bits) {
  int has_epsilons = NO, is_rising = YES, repeats = NO;
  for (int64_t s = 0; s < num_states(f); s++) {
    int64_t begin = first_of(f)[s], count = first_of(f)[s + 1] - begin;
    int32_t *labels = values(&w->labels, count, sizeof *labels);
    if (!labels) return NO;
    int here = YES;
    for (int64_t a = 0; a < count; a++) {
      labels[a] = arcs_of(f)[begin + a].ilabel;
      has_epsilons |= labels[a] == EPSILON;
      here &= !a || labels[a - 1] <= labels[a];
    }
    if (!here) qsort(labels, (size_t)count, sizeof *labels, compared_labels);
    for (int64_t a = 1; a < count; a++) repeats |= labels[a] == labels[a - 1];
    is_rising &= here;
  }
  *bits |= bit(ACCEPTOR, YES) | bit(EPSILONS, has_epsilons) | bit(I_EPSILONS, has_epsilons);
  *bits |= bit(O_EPSILONS, has_epsilons) | bit(I_LABEL_SORTED, is_rising) | bit(O_LABEL_SORTED, is_rising);
  *bits |= bit(I_DETERMINISTIC, !repeats) | bit(O_DETERMINISTIC, !repeats);
  return YES;
}

/* The strongly connected component of each state, by Tarjan's algorithm; NULL for want of memory. */
static const int32_t *components(property_work *w, const fst *f) {
  int64_t size = num_states(f), depth = 0, num_members = 0;
  int32_t *low = values(&w->low, size, sizeof *low), *entered = values(&w->entered, size, sizeof *entered);
  int32_t *component = values(&w->component, size, sizeof *component), *path = values(&w->path, size, sizeof *path);
  int32_t *members = values(&w->members, size, sizeof *members), time = 0, count = 0;
  int64_t *places = values(&w->places, size, sizeof *places);
  if (!low || !entered || !component || !path || !members || !places) return NULL;
  for (int64_t s = 0; s < size; s++) entered[s] = component[s] = -1;
  for (int64_t root = 0; root < size; root++) {
    if (entered[root] >= 0) continue;
    path[depth++] = members[num_members++] = (int32_t)root;
    places[root] = first_of(f)[root];
    entered[root] = low[root] = time++;
    while (depth) {
      int32_t s = path[depth - 1];
      if (places[s] < first_of(f)[s + 1]) {
        int32_t target = arcs_of(f)[places[s]++].target;
        if (entered[target] < 0) {
          entered[target] = low[target] = time++;
          places[target] = first_of(f)[target];
          path[depth++] = members[num_members++] = target;
        } else if (component[target] < 0 && entered[target] < low[s]) {
          low[s] = entered[target];
        }
        continue;
      }
      depth--;
      if (depth && low[s] < low[path[depth - 1]]) low[path[depth - 1]] = low[s];
      if (low[s] != entered[s]) continue;
      do component[members[--num_members]] = count;
      while (members[num_members] != s);
      count++;
    }
  }
  return component;
}

static int cycle_bits(property_work *w, const fst *f, uint64_t *bits) {
  int is_cyclic = NO, is_initial = NO, is_weighted_cycle = NO, sorted = is_sorted(f);
  const int32_t *component = sorted ? NULL : components(w, f);
  if (!sorted && !component) return NO;
  for (int64_t s = 0; s < num_states(f) && !sorted; s++) {
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) {
      const arc *old = arcs_of(f) + a;
      if (component[s] != component[old->target]) continue;
      is_cyclic = YES;
      is_initial |= s == f->start;
      is_weighted_cycle |= old->weight != 0.0f;
    }
  }
  *bits |= bit(TOP_SORTED, sorted) | bit(CYCLIC, is_cyclic) | bit(INITIAL_CYCLIC, is_initial);
  *bits |= bit(WEIGHTED_CYCLES, is_weighted_cycle);
  return YES;
}

/* Whether it is a chain 0, 1, 2, ... of which only the last state may be final. */
static int is_string(const fst *f) {
  int64_t size = num_states(f);
  for (int64_t s = 0; s < size; s++) {
    int64_t begin = first_of(f)[s], count = first_of(f)[s + 1] - begin;
    int is_final = finals_of(f)[s] != INFINITY;
    if ((!is_final && count != 1) || (is_final && s < size - 1)) return NO;
    for (int64_t a = begin; a < begin + count; a++) {
      if (arcs_of(f)[a].target != s + 1) return NO;
    }
  }
  return f->start <= 0;
}

static int path_bits(const fst *f, walks *walk, uint64_t *bits) {
  if (!reach(f, walk)) return NO;
  const uint8_t *from_start = walk->from_start.data, *to_end = walk->to_end.data;
  int all_reached = YES, all_end = YES;
  for (int64_t s = 0; s < num_states(f); s++) {
    all_reached &= from_start[s];
    all_end &= to_end[s];
  }
  *bits |= bit(WEIGHTED, is_weighted(f)) | bit(ACCESSIBLE, all_reached) | bit(COACCESSIBLE, all_end);
  *bits |= bit(STRING, is_string(f));
  return YES;
}

static uint8_t *put(uint8_t *at, const void *data, size_t size) {
  memcpy(at, data, size);
  return at + size;
}

static uint8_t *put_word(uint8_t *at, const char *word) {
  int32_t size = (int32_t)strlen(word);
  return put(put(at, &size, sizeof size), word, (size_t)size);
}

/* Append the compact_acceptor file of an acceptor of finite weights. */
static int write_compact(property_work *w, const fst *f, growing *out, walks *walk) {
  uint64_t properties = 1; /* it is an expanded one */
  if (!label_bits(w, f, &properties) || !cycle_bits(w, f, &properties) || !path_bits(f, walk, &properties)) return NO;
  int64_t states = num_states(f), count = f->arcs.size, num_elements = count;
  for (int64_t s = 0; s < states; s++) num_elements += finals_of(f)[s] != INFINITY;
  int64_t size = COMPACT_NAMES + 40 + 4 * (states + 1) + num_elements * (int64_t)sizeof(element);
  out->each = 1;
  uint8_t *at = added(out, size);
  if (!at || num_elements > UINT32_MAX) return NO;
  const int32_t magic = 2125659606, version[2] = {2, 0};
  at = put_word(put_word(put(at, &magic, sizeof magic), "compact_acceptor"), "standard");
  at = put(put(at, version, sizeof version), &properties, sizeof properties);
  const int64_t numbers[3] = {f->start, states, count};
  at = put(at, numbers, sizeof numbers);
  uint8_t *elements = at + 4 * (states + 1);
  uint32_t end = 0;
  at = put(at, &end, sizeof end);
  for (int64_t s = 0; s < states; s++) {
    if (finals_of(f)[s] != INFINITY) {
      if (!isfinite(finals_of(f)[s])) return NO;
      element e = {NOT_AN_ARC, finals_of(f)[s], NOT_AN_ARC};
      elements = put(elements, &e, sizeof e);
      end++;
    }
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++, end++) {
      const arc *old = arcs_of(f) + a;
      element e = {old->ilabel, old->weight, old->target};
      if (!isfinite(e.weight)) return NO;
      elements = put(elements, &e, sizeof e);
    }
    at = put(at, &end, sizeof end);
  }
  return YES;
}
