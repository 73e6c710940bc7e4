/* Removing epsilons where that makes an FST no larger, as fst/local_epsilon.py does it. */

enum { DELETED = -1 };

typedef struct {
  growing lists;    /* growing: the arcs of each state as they change; those beyond `size` are for later */
  growing num_in, num_out, finals;
  int64_t size;
  fst connected, joined;
} local_work;

static growing *list_of(const local_work *w, int64_t state) { return (growing *)w->lists.data + state; }
static arc *arc_at(const local_work *w, int64_t state, int64_t place) { return (arc *)list_of(w, state)->data + place; }
static int32_t *num_in_of(const local_work *w, int64_t state) { return (int32_t *)w->num_in.data + state; }
static int32_t *num_out_of(const local_work *w, int64_t state) { return (int32_t *)w->num_out.data + state; }
static float *final_of(const local_work *w, int64_t state) { return (float *)w->finals.data + state; }

static float least(float one, float other) { return other < one ? other : one; }

static int begin_local(local_work *w, const fst *in) {
  int64_t size = num_states(in);
  w->lists.each = sizeof(growing);
  if (w->lists.size < size) {
    growing *lists = added(&w->lists, size - w->lists.size);
    if (!lists) return NO;
    memset(lists, 0, sizeof *lists * (size_t)(w->lists.size - (lists - (growing *)w->lists.data)));
  }
  int32_t *num_in = zeros(&w->num_in, size, sizeof *num_in), *num_out = values(&w->num_out, size, sizeof *num_out);
  float *finals = values(&w->finals, size, sizeof *finals);
  if (!num_in || !num_out || !finals) return NO;
  num_in[in->start] = 1;
  for (int64_t s = 0; s < size; s++) {
    growing *list = list_of(w, s);
    int64_t count = first_of(in)[s + 1] - first_of(in)[s];
    list->size = 0;
    list->each = sizeof(arc);
    arc *arcs = added(list, count + 1);
    if (!arcs) return NO;
    list->size = count;
    if (count) memcpy(arcs, arcs_of(in) + first_of(in)[s], (size_t)count * sizeof *arcs);
    for (int64_t a = 0; a < count; a++) num_in[arcs[a].target]++;
    finals[s] = finals_of(in)[s];
    num_out[s] = (int32_t)count + (finals[s] != INFINITY);
  }
  w->size = size;
  return YES;
}

/* Whether both make one arc, which they do unless both read or both write. */
static int combined(const arc *one, const arc *next, arc *both) {
  if ((one->ilabel && next->ilabel) || (one->olabel && next->olabel)) return NO;
  *both = (arc){one->ilabel ? one->ilabel : next->ilabel, one->olabel ? one->olabel : next->olabel,
                one->weight + next->weight, next->target};
  return YES;
}

static int add_joined(local_work *w, int64_t state, arc joined) {
  arc *place = added(list_of(w, state), 1);
  if (!place) return NO;
  *place = joined;
  ++*num_out_of(w, state);
  ++*num_in_of(w, joined.target);
  return YES;
}

static void delete_arc(local_work *w, int64_t state, int64_t place) {
  arc *old = arc_at(w, state, place);
  --*num_out_of(w, state);
  --*num_in_of(w, old->target);
  old->target = DELETED;
}

/* Give the state the final weight behind an epsilon arc; NO if the arc is none. */
static int join_final(local_work *w, int64_t state, arc a) {
  if (a.ilabel || a.olabel) return NO;
  float *final = final_of(w, state);
  int was_final = *final != INFINITY;
  *final = least(*final, a.weight + *final_of(w, a.target));
  *num_out_of(w, state) += !was_final && *final != INFINITY; /* not if the sum overflows */
  return YES;
}

static void take_final(local_work *w, int64_t state) {
  --*num_out_of(w, state);
  *final_of(w, state) = INFINITY;
}

/* Move a weight from the arcs after an arc onto it. */
static void reweight(local_work *w, int64_t state, int64_t place, float weight) {
  arc *before = arc_at(w, state, place);
  before->weight = before->weight + weight;
  int64_t between = before->target;
  for (int64_t a = 0; a < list_of(w, between)->size; a++) {
    arc *after = arc_at(w, between, a);
    if (after->target != DELETED) after->weight = after->weight - weight;
  }
  if (*final_of(w, between) != INFINITY) *final_of(w, between) -= weight;
}

/* The state between has one arc in: those arcs out of it move that can be joined with that one. */
static int join_with_many(local_work *w, int64_t state, int64_t place, arc a) {
  int64_t between = a.target, first_added = list_of(w, state)->size;
  float removed = INFINITY, kept = INFINITY;
  for (int64_t b = 0; b < list_of(w, between)->size; b++) {
    arc *after = arc_at(w, between, b), both;
    if (after->target == DELETED) continue;
    if (!combined(&a, after, &both)) {
      kept = least(kept, after->weight);
      continue;
    }
    removed = least(removed, after->weight);
    delete_arc(w, between, b);
    arc *new = added(list_of(w, state), 1);
    if (!new) return NO;
    *new = both;
  }
  float final = *final_of(w, between);
  if (final != INFINITY) {
    if (join_final(w, state, a)) {
      removed = least(removed, final);
      take_final(w, between);
    } else {
      kept = least(kept, final);
    }
  }
  if (removed != INFINITY) {
    if (kept == INFINITY) delete_arc(w, state, place);
    else reweight(w, state, place, kept - least(removed, kept));
  }
  for (int64_t b = first_added; b < list_of(w, state)->size; b++) { /* counted only now */
    ++*num_out_of(w, state);
    ++*num_in_of(w, arc_at(w, state, b)->target);
  }
  return YES;
}

/* The state between has one arc out, or only a final weight, and any number of arcs in. */
static int join_with_one(local_work *w, int64_t state, int64_t place, arc a) {
  int64_t between = a.target;
  int last_way_in = *num_in_of(w, between) == 1;
  if (*final_of(w, between) != INFINITY) {
    if (!join_final(w, state, a)) return YES;
    if (last_way_in) take_final(w, between);
  } else {
    int64_t b = 0;
    arc both;
    while (arc_at(w, between, b)->target == DELETED) b++;
    if (!combined(&a, arc_at(w, between, b), &both)) return YES;
    if (last_way_in) delete_arc(w, between, b);
    if (!add_joined(w, state, both)) return NO;
  }
  delete_arc(w, state, place);
  return YES;
}

static int join(local_work *w, int64_t state, int64_t place) {
  arc a = *arc_at(w, state, place);
  if (a.target == DELETED || a.target == state) return YES;
  int32_t ways_in = *num_in_of(w, a.target), ways_out = *num_out_of(w, a.target);
  if (ways_in == 1 && ways_out > 1) return join_with_many(w, state, place, a);
  return ways_out == 1 ? join_with_one(w, state, place, a) : YES;
}

/* An equivalent connected FST with fewer epsilons, or as many. */
static int remove_epsilons_locally(local_work *w, const fst *in, fst *out, walks *walk) {
  if (!connect(in, &w->connected, walk)) return NO;
  if (!num_states(&w->connected)) return begin_fst(out, NO_STATE);
  if (!begin_local(w, &w->connected)) return NO;
  for (int64_t s = 0; s < w->size; s++) {
    for (int64_t a = 0; a < list_of(w, s)->size; a++) { /* which grows */
      if (!join(w, s, a)) return NO;
    }
  }
  if (!begin_fst(&w->joined, w->connected.start)) return NO;
  for (int64_t s = 0; s < w->size; s++) {
    for (int64_t a = 0; a < list_of(w, s)->size; a++) {
      const arc *left = arc_at(w, s, a);
      if (left->target == DELETED) continue;
      if (!add_arc(&w->joined, left->ilabel, left->olabel, left->weight, left->target)) return NO;
    }
    if (!end_state(&w->joined, *final_of(w, s))) return NO;
  }
  return connect(&w->joined, out, walk);
}
