/* Minimization of acyclic deterministic acceptors, as fst/minimize.py does it. */

typedef struct {
  growing order, waiting, distances, heights, by_height, class_of, classes, table, same;
  fst connected;
} minimize_work;

typedef struct { int32_t first, last, next; } state_class; /* next: another one in the same slot */

static int is_sorted(const fst *f) {
  for (int64_t s = 0; s < num_states(f); s++) {
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) {
      if (arcs_of(f)[a].target <= s) return NO;
    }
  }
  return YES;
}

/* States so that arcs lead forward; NULL if there is a cycle. */
static const int32_t *top_order(minimize_work *w, const fst *f) {
  int64_t size = num_states(f), count = 0;
  int32_t *order = values(&w->order, size, sizeof *order), *left = zeros(&w->waiting, size, sizeof *left);
  if (!order || !left) return NULL;
  if (is_sorted(f)) {
    for (int64_t s = 0; s < size; s++) order[s] = (int32_t)s;
    return order;
  }
  for (int64_t a = 0; a < f->arcs.size; a++) left[arcs_of(f)[a].target]++;
  for (int64_t s = 0; s < size; s++) {
    if (!left[s]) order[count++] = (int32_t)s;
  }
  for (int64_t i = 0; i < count; i++) { /* which grows */
    for (int64_t a = first_of(f)[order[i]]; a < first_of(f)[order[i] + 1]; a++) {
      int32_t target = arcs_of(f)[a].target;
      if (!--left[target]) order[count++] = target;
    }
  }
  return count == size ? order : NULL;
}

static int is_weighted(const fst *f) {
  for (int64_t a = 0; a < f->arcs.size; a++) {
    if (arcs_of(f)[a].weight != 0.0f) return YES;
  }
  for (int64_t s = 0; s < num_states(f); s++) {
    if (finals_of(f)[s] != INFINITY && finals_of(f)[s] != 0.0f) return YES;
  }
  return NO;
}

static const float SHORTEST = 1e-6f;

static float rounded(float weight) { return floorf(weight / SHORTEST + 0.5f) * SHORTEST; }

/* Weights as early on their paths as can be, and rounded. */
static int push(minimize_work *w, fst *f, const int32_t *order) {
  int64_t size = num_states(f);
  float *distances = values(&w->distances, size, sizeof *distances), *finals = finals_of(f);
  arc *arcs = arcs_of(f);
  if (!distances) return NO;
  for (int64_t i = size; i--;) {
    int32_t s = order[i];
    distances[s] = finals[s];
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) {
      float distance = arcs[a].weight + distances[arcs[a].target];
      if (distance < distances[s]) distances[s] = distance;
    }
    if (!isfinite(distances[s])) return NO; /* NaN would come of it: no state is like another then */
  }
  float total = distances[f->start];
  for (int64_t s = 0; s < size; s++) {
    int is_first = s == f->start && total != 0.0f;
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) {
      float weight = (arcs[a].weight + distances[arcs[a].target]) - distances[s];
      arcs[a].weight = rounded(is_first ? total + weight : weight);
    }
    if (finals[s] == INFINITY) continue;
    float final = finals[s] - distances[s];
    finals[s] = rounded(is_first ? total + final : final);
  }
  return YES;
}

/* States by the length of their longest path to the end, the last of equal ones first. */
static const int32_t *states_by_height(minimize_work *w, const fst *f, const int32_t *order) {
  int64_t size = num_states(f);
  int32_t *heights = values(&w->heights, size, sizeof *heights), *counts = zeros(&w->waiting, size + 2, sizeof *counts);
  int32_t *found = values(&w->by_height, size, sizeof *found);
  if (!heights || !counts || !found) return NULL;
  for (int64_t i = size; i--;) {
    int32_t s = order[i], height = 0;
    for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) {
      int32_t behind = heights[arcs_of(f)[a].target] + 1;
      height = behind > height ? behind : height;
    }
    heights[s] = height;
    counts[height + 1]++;
  }
  for (int64_t h = 0; h < size; h++) counts[h + 1] += counts[h];
  for (int64_t s = size; s--;) found[counts[heights[s]]++] = (int32_t)s;
  return found;
}

static uint64_t bits_of(float weight) {
  uint32_t bits;
  weight += 0.0f; /* of -0.0, too */
  memcpy(&bits, &weight, sizeof bits);
  return bits;
}

static uint64_t hash_of_state(const fst *f, const int32_t *same, int32_t s) {
  uint64_t hash = bits_of(finals_of(f)[s]);
  for (int64_t a = first_of(f)[s]; a < first_of(f)[s + 1]; a++) {
    const arc *old = arcs_of(f) + a;
    hash = mixed(hash * 31 + mixed(bits_of(old->weight) << 32 | (uint32_t)old->ilabel) + (uint64_t)same[old->target]);
  }
  return hash;
}

static int are_alike(const fst *f, const int32_t *same, int32_t one, int32_t other) {
  const int64_t *first = first_of(f);
  int64_t count = first[one + 1] - first[one];
  if (first[other + 1] - first[other] != count || finals_of(f)[one] != finals_of(f)[other]) return NO;
  for (int64_t i = 0; i < count; i++) {
    const arc *a = arcs_of(f) + first[one] + i, *b = arcs_of(f) + first[other] + i;
    if (a->ilabel != b->ilabel || a->weight != b->weight || same[a->target] != same[b->target]) return NO;
  }
  return YES;
}

/* `same[s]`: the state that stands for s. Of like ones of a height the first remains, but the last of
   those like the last of all. */
static int find_alike(minimize_work *w, const fst *f, const int32_t *states, int32_t *same) {
  int64_t size = num_states(f), slots = power_of_two(2 * size), count = 0;
  const int32_t *heights = w->heights.data;
  int32_t *class_of = values(&w->class_of, size, sizeof *class_of), *table = values(&w->table, slots, sizeof *table);
  state_class *classes = values(&w->classes, size, sizeof *classes);
  if (!class_of || !table || !classes) return NO;
  memset(table, 0xff, (size_t)slots * sizeof *table);
  for (int64_t begin = 0, end; begin < size; begin = end) {
    int64_t first_class = count;
    for (end = begin; end < size && heights[states[end]] == heights[states[begin]]; end++) {
      int32_t s = states[end], *slot = table + (hash_of_state(f, same, s) & (uint64_t)(slots - 1)), c = *slot;
      while (c >= first_class && !are_alike(f, same, classes[c].first, s)) c = classes[c].next;
      if (c < first_class) {
        c = (int32_t)count++;
        classes[c] = (state_class){s, s, *slot};
        *slot = c;
      }
      classes[c].last = s;
      class_of[s] = c;
    }
    for (int64_t i = begin; i < end; i++) {
      const state_class *c = classes + class_of[states[i]];
      same[states[i]] = c - classes == first_class ? c->first : c->last;
    }
  }
  return YES;
}

/* The states that remain, with the arcs of the first of their class, by label. */
static int keep_one_of_each(minimize_work *w, const fst *f, const int32_t *same, fst *out) {
  int32_t *numbers = values(&w->waiting, num_states(f), sizeof *numbers), count = 0;
  const int32_t *class_of = w->class_of.data;
  const state_class *classes = w->classes.data;
  if (!numbers) return NO;
  for (int64_t s = 0; s < num_states(f); s++) numbers[s] = same[s] == s ? count++ : NO_STATE;
  if (!begin_fst(out, numbers[same[f->start]])) return NO;
  for (int64_t s = 0; s < num_states(f); s++) {
    if (same[s] != s) continue;
    int32_t like = classes[class_of[s]].first;
    for (int64_t a = first_of(f)[like]; a < first_of(f)[like + 1]; a++) {
      const arc *old = arcs_of(f) + a;
      if (!add_arc(out, old->ilabel, old->ilabel, old->weight, numbers[same[old->target]])) return NO;
    }
    if (!end_state(out, finals_of(f)[s])) return NO;
  }
  return YES;
}

/* The least acceptor equivalent to one that determinize made; NO if that has a cycle. */
static int minimize(minimize_work *w, const fst *in, fst *out, walks *walk) {
  fst *f = &w->connected;
  if (!connect(in, f, walk)) return NO;
  if (!num_states(f)) return begin_fst(out, NO_STATE);
  const int32_t *order = top_order(w, f), *states;
  if (!order || (is_weighted(f) && !push(w, f, order))) return NO;
  int32_t *same = values(&w->same, num_states(f), sizeof *same);
  if (!same || !(states = states_by_height(w, f, order))) return NO;
  return find_alike(w, f, states, same) && keep_one_of_each(w, f, same, out);
}
