/* Removing epsilon arcs, as fst/epsilon.py does it. */

/* Arcs of one state, of like ones one with the least weight, in the order in which they came. */
typedef struct { growing arcs, table; int64_t table_size; int32_t stamp; } arc_set;
typedef struct { int32_t stamp, place; } arc_place;

static void begin_set(arc_set *set) {
  set->arcs.size = 0;
  set->arcs.each = sizeof(arc);
  set->stamp++;
}

static int64_t slot_of(const arc_set *set, const arc *a) {
  const arc_place *table = set->table.data;
  uint64_t key = mixed(((uint64_t)(uint32_t)a->ilabel << 32 | (uint32_t)a->target) ^ mixed((uint32_t)a->olabel));
  for (int64_t slot = (int64_t)(key & (uint64_t)(set->table_size - 1));; slot = (slot + 1) & (set->table_size - 1)) {
    if (table[slot].stamp != set->stamp) return slot;
    const arc *there = (const arc *)set->arcs.data + table[slot].place;
    if (there->ilabel == a->ilabel && there->olabel == a->olabel && there->target == a->target) return slot;
  }
}

static int grow_set(arc_set *set) {
  int64_t size = power_of_two(4 * (set->arcs.size + 1));
  arc_place *table = zeros(&set->table, size, sizeof *table);
  if (!table) return NO;
  set->table_size = size;
  set->stamp = 1;
  for (int64_t i = 0; i < set->arcs.size; i++) {
    int64_t slot = slot_of(set, (const arc *)set->arcs.data + i);
    table[slot] = (arc_place){set->stamp, (int32_t)i};
  }
  return YES;
}

static int add_to_set(arc_set *set, arc new) {
  if ((2 * set->arcs.size >= set->table_size || set->stamp == INT32_MAX) && !grow_set(set)) return NO;
  arc_place *place = (arc_place *)set->table.data + slot_of(set, &new);
  if (place->stamp == set->stamp) {
    arc *there = (arc *)set->arcs.data + place->place;
    if (new.weight < there->weight) there->weight = new.weight;
    return YES;
  }
  *place = (arc_place){set->stamp, (int32_t)set->arcs.size};
  arc *added_arc = added(&set->arcs, 1);
  if (!added_arc) return NO;
  *added_arc = new;
  return YES;
}

/* The arcs of the set the other way round. */
static int add_reversed(fst *out, const arc_set *set) {
  if (!set->arcs.size) return YES;
  arc *arcs = added(&out->arcs, set->arcs.size);
  if (!arcs) return NO;
  for (int64_t i = 0; i < set->arcs.size; i++) arcs[i] = ((const arc *)set->arcs.data)[set->arcs.size - 1 - i];
  return YES;
}

typedef struct { growing has_epsilons, kept, distances, targets; arc_set set, other; walks walks; fst whole; } epsilon_work;

static int is_epsilon(const arc *a) { return a->ilabel == EPSILON && a->olabel == EPSILON; }

/* The arcs of a state without epsilons, reversed if it will be in the result, go into the set. */
static int add_behind(epsilon_work *w, const fst *in, int64_t state, float distance) {
  const arc *arcs = arcs_of(in) + first_of(in)[state];
  int64_t count = first_of(in)[state + 1] - first_of(in)[state];
  int is_kept = ((const uint8_t *)w->kept.data)[state];
  if (is_kept) {
    begin_set(&w->other);
    for (int64_t a = 0; a < count; a++) {
      if (!add_to_set(&w->other, arcs[a])) return NO;
    }
    arcs = w->other.arcs.data;
    count = w->other.arcs.size;
  }
  for (int64_t a = 0; a < count; a++) {
    arc new = arcs[is_kept ? count - 1 - a : a];
    new.weight = distance + new.weight;
    if (!isfinite(new.weight)) return NO;
    if (!add_to_set(&w->set, new)) return NO;
  }
  return YES;
}

static const double SHORTEST_DELTA = 1e-6;

/* What a state has without its epsilons, which lead to states without any. Nothing stays -0.0. */
static int expand(epsilon_work *w, const fst *in, fst *out, int64_t state) {
  float *distances = w->distances.data, final = 0.0f + finals_of(in)[state];
  int32_t *targets = values(&w->targets, first_of(in)[state + 1] - first_of(in)[state], sizeof *targets);
  int64_t count = 0;
  if (!targets) return NO;
  begin_set(&w->set);
  for (int64_t a = first_of(in)[state]; a < first_of(in)[state + 1]; a++) {
    const arc *old = arcs_of(in) + a;
    if (!is_epsilon(old)) {
      arc new = {old->ilabel, old->olabel, 0.0f + old->weight, old->target};
      if (!add_to_set(&w->set, new)) return NO;
      continue;
    }
    float distance = 0.0f + old->weight;
    if ((double)distance < (double)distances[old->target] - SHORTEST_DELTA) distances[old->target] = distance;
    targets[count++] = old->target;
  }
  while (count--) { /* those met last first; each once */
    int32_t target = targets[count];
    float distance = distances[target];
    if (distance == INFINITY) continue;
    distances[target] = INFINITY;
    if (!add_behind(w, in, target, distance)) return NO;
    float behind = distance + finals_of(in)[target];
    if (behind < final) final = behind;
  }
  return add_reversed(out, &w->set) && end_state(out, final);
}

/* Marks the states that have epsilons, and those that are entered otherwise or are the start. */
static int mark(epsilon_work *w, const fst *in) {
  int64_t size = num_states(in);
  uint8_t *has_epsilons = zeros(&w->has_epsilons, size, 1), *kept = zeros(&w->kept, size, 1);
  float *distances = values(&w->distances, size, sizeof *distances);
  if (!has_epsilons || !kept || !distances) return NO;
  kept[in->start] = 1;
  for (int64_t s = 0; s < size; s++) {
    distances[s] = INFINITY;
    for (int64_t a = first_of(in)[s]; a < first_of(in)[s + 1]; a++) {
      const arc *old = arcs_of(in) + a;
      if (!isfinite(old->weight)) return NO;
      *(is_epsilon(old) ? has_epsilons + s : kept + old->target) = 1;
    }
  }
  return YES;
}

/* The FST without arcs that neither read nor write, connected. */
static int remove_epsilons(epsilon_work *w, const fst *in, fst *out) {
  if (!num_states(in)) return begin_fst(out, NO_STATE);
  if (!mark(w, in) || !begin_fst(&w->whole, in->start)) return NO;
  const uint8_t *has_epsilons = w->has_epsilons.data, *kept = w->kept.data;
  for (int64_t s = 0; s < num_states(in); s++) {
    for (int64_t a = first_of(in)[s]; has_epsilons[s] && a < first_of(in)[s + 1]; a++) {
      const arc *old = arcs_of(in) + a;
      if (is_epsilon(old) && has_epsilons[old->target]) return NO;
    }
  }
  for (int64_t s = 0; s < num_states(in); s++) {
    if (has_epsilons[s] && kept[s]) {
      if (!expand(w, in, &w->whole, s)) return NO;
      continue;
    }
    begin_set(&w->set);
    for (int64_t a = first_of(in)[s]; kept[s] && a < first_of(in)[s + 1]; a++) {
      if (!add_to_set(&w->set, arcs_of(in)[a])) return NO;
    }
    if (!add_reversed(&w->whole, &w->set) || !end_state(&w->whole, finals_of(in)[s])) return NO;
  }
  return connect(&w->whole, out, &w->walks);
}
