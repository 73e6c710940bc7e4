/* Determinization of acceptors, as fst/determinize.py does it. */

typedef struct { int32_t state; double owed; } member; /* owed: multiples of 1/1024, as Python keeps them */
typedef struct { int32_t label, target; float weight; int32_t place; } candidate;

typedef struct {
  growing members, begins; /* of all subsets, one after another; begins: int64_t */
  growing table, candidates, fresh;
  int64_t table_size;
} subset_work;

static const int64_t MOST_MEMBERS = 10000000; /* 160 MB; as in Python, where they take 1 GB */
static const double DELTA = 1.0 / 1024.0;

static int compared(const void *a, const void *b) {
  const candidate *one = a, *other = b;
  if (one->label != other->label) return one->label < other->label ? -1 : 1;
  if (one->target != other->target) return one->target < other->target ? -1 : 1;
  if (one->weight != other->weight) return one->weight < other->weight ? -1 : 1;
  return one->place < other->place ? -1 : 1;
}

static void sort_candidates(candidate *c, int64_t count) {
  if (count > 16) {
    qsort(c, (size_t)count, sizeof *c, compared);
    return;
  }
  for (int64_t i = 1; i < count; i++) {
    candidate moved = c[i];
    int64_t at = i;
    for (; at && compared(c + at - 1, &moved) > 0; at--) c[at] = c[at - 1];
    c[at] = moved;
  }
}

static uint64_t hash_of(const member *m, int64_t count) {
  uint64_t hash = (uint64_t)count;
  for (int64_t i = 0; i < count; i++) {
    double owed = m[i].owed + 0.0; /* of -0.0, too */
    uint64_t bits;
    memcpy(&bits, &owed, sizeof bits);
    hash = mixed(hash * 31 + (uint64_t)m[i].state + mixed(bits));
  }
  return hash;
}

static int are_equal(const member *one, const member *other, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (one[i].state != other[i].state || one[i].owed != other[i].owed) return NO;
  }
  return YES;
}

static int64_t num_subsets(const subset_work *w) { return w->begins.size - 1; }
static const member *subset(const subset_work *w, int64_t number, int64_t *count) {
  const int64_t *begins = w->begins.data;
  *count = begins[number + 1] - begins[number];
  return (const member *)w->members.data + begins[number];
}

static int64_t slot_of_subset(const subset_work *w, const member *m, int64_t count) {
  const int32_t *table = w->table.data;
  int64_t slot = (int64_t)(hash_of(m, count) & (uint64_t)(w->table_size - 1));
  for (; table[slot] >= 0; slot = (slot + 1) & (w->table_size - 1)) {
    int64_t size;
    const member *there = subset(w, table[slot], &size);
    if (size == count && are_equal(there, m, count)) break;
  }
  return slot;
}

static int grow_table(subset_work *w) {
  int64_t size = power_of_two(4 * (num_subsets(w) + 1));
  int32_t *table = values(&w->table, size, sizeof *table);
  if (!table) return NO;
  memset(table, 0xff, (size_t)size * sizeof *table);
  w->table_size = size;
  for (int64_t i = 0; i < num_subsets(w); i++) {
    int64_t count;
    const member *m = subset(w, i, &count);
    table[slot_of_subset(w, m, count)] = (int32_t)i;
  }
  return YES;
}

/* The number of a subset, a new one if need be; -1 for want of memory. */
static int64_t number_of(subset_work *w, const member *m, int64_t count) {
  if (2 * num_subsets(w) >= w->table_size && !grow_table(w)) return -1;
  int64_t slot = slot_of_subset(w, m, count);
  int32_t *table = w->table.data;
  if (table[slot] >= 0) return table[slot];
  table[slot] = (int32_t)num_subsets(w);
  member *new = added(&w->members, count);
  int64_t *begin = added(&w->begins, 1);
  if (!new || !begin) return -1;
  memcpy(new, m, (size_t)count * sizeof *new);
  *begin = w->members.size;
  return table[slot];
}

static int begin_subsets(subset_work *w, int64_t start) {
  w->members.size = w->begins.size = 0;
  w->members.each = sizeof(member);
  w->begins.each = sizeof(int64_t);
  int64_t *begin = added(&w->begins, 1);
  if (!begin) return NO;
  *begin = 0;
  w->table_size = 0;
  member first = {(int32_t)start, 0.0};
  return number_of(w, &first, 1) == 0;
}

/* One state whose weights stay as they are, -0.0 included. */
static int owes_nothing(const member *m, int64_t count) { return count == 1 && m->owed == 0.0; }

/* All arcs that leave a subset, by label, then target and weight; how many, or -1. */
static int64_t gather(subset_work *w, const fst *in, int64_t number) {
  int64_t count, found = 0;
  const member *m = subset(w, number, &count);
  int is_plain = owes_nothing(m, count);
  for (int64_t i = 0; i < count; i++) found += first_of(in)[m[i].state + 1] - first_of(in)[m[i].state];
  candidate *c = values(&w->candidates, found, sizeof *c);
  if (!c) return -1;
  found = 0;
  for (int64_t i = 0; i < count; i++) {
    for (int64_t a = first_of(in)[m[i].state]; a < first_of(in)[m[i].state + 1]; a++) {
      const arc *old = arcs_of(in) + a;
      float weight = is_plain ? old->weight : (float)(m[i].owed + (double)old->weight);
      c[found] = (candidate){old->ilabel, old->target, weight, (int32_t)found};
      found++;
    }
  }
  sort_candidates(c, found);
  return found;
}

/* The arc of one label: its weight is the least, the rest is owed. */
static int add_normalized(subset_work *w, fst *out, const candidate *c, int64_t count) {
  member *fresh = values(&w->fresh, count, sizeof *fresh);
  if (!fresh) return NO;
  float low = c[0].weight;
  int64_t size = 0;
  for (int64_t i = 1; i < count; i++) low = c[i].weight < low ? c[i].weight : low;
  if (!isfinite(low)) return NO;
  for (int64_t i = 0; i < count; i++) {
    if (i && c[i].target == c[i - 1].target) continue; /* the first of a state has its least weight */
    float more = (float)((double)c[i].weight - (double)low);
    if (!isfinite(more)) return NO; /* sums that overflow, of which NaN may come: no subset equals another then */
    fresh[size++] = (member){c[i].target, count == 1 ? 0.0 : floor((double)more / DELTA + 0.5) * DELTA};
  }
  int64_t number = number_of(w, fresh, size);
  return number >= 0 && add_arc(out, c[0].label, c[0].label, low, number);
}

static float final_of_subset(const subset_work *w, const fst *in, int64_t number) {
  int64_t count;
  const member *m = subset(w, number, &count);
  float final = finals_of(in)[m[0].state];
  if (owes_nothing(m, count)) return final;
  for (int64_t i = 0; i < count; i++) {
    float whole = (float)(m[i].owed + (double)finals_of(in)[m[i].state]);
    if (!i || whole < final) final = whole;
  }
  return final;
}

/* An equivalent acceptor in which no state has two arcs of one label; NO if it gets too big. */
static int determinize(subset_work *w, const fst *in, fst *out, int64_t max_states) {
  if (!num_states(in)) return begin_fst(out, NO_STATE);
  if (!begin_subsets(w, in->start) || !begin_fst(out, 0)) return NO;
  for (int64_t number = 0; number < num_subsets(w); number++) { /* which grow */
    int64_t count = gather(w, in, number);
    if (count < 0) return NO;
    const candidate *c = w->candidates.data;
    for (int64_t at = 0, end; at < count; at = end) {
      for (end = at + 1; end < count && c[end].label == c[at].label;) end++;
      if (!add_normalized(w, out, c + at, end - at)) return NO;
    }
    if (num_subsets(w) > max_states || w->members.size > MOST_MEMBERS) return NO;
    if (!end_state(out, final_of_subset(w, in, number))) return NO;
  }
  return YES;
}
