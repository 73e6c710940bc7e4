/* Finds successive entries of a binary archive of chain examples whose layouts are known (chain/native/entries.py). */
typedef struct { int64_t text, size, skipped; } piece; /* some of the texts' bytes, then arbitrary ones */
typedef struct { int64_t first, last, num_fsts, label_dim, num_rows; } layout; /* two pieces follow FSTs and weights */
typedef struct { int64_t layout, key, end_of_key, begin, end, holes[4]; } entry;

/* The end of an acceptor that fst/file_walks.py accepts, too; NULL if that is uncertain or the data end before. */
static const uint8_t *end_of_acceptor(const uint8_t *at, const uint8_t *end, int64_t label_dim) {
  struct { int32_t version, flags; uint64_t properties; int64_t start, states, arcs; } h;
  const uint64_t trinary = 0x0000FFFFFFFF0000ull, yes = trinary & 0x5555555555555555ull;
  if (!at || end - at < COMPACT_NAMES + (int64_t)sizeof h) return NULL;
  memcpy(&h, at + COMPACT_NAMES, sizeof h);
  if (memcmp(at, "\xd6\xfd\xb2\x7e\x10\0\0\0" "compact_acceptor" "\x08\0\0\0" "standard", COMPACT_NAMES) ||
      h.version != 2 || h.flags || (h.properties & ~trinary) != 1 || ((h.properties | h.properties >> 1) & yes) != yes)
    return NULL;
  const uint8_t *ends = at + COMPACT_NAMES + sizeof h, *elements = ends + 4;
  if (h.states < 0 || h.states >= (end - ends) / 4 || h.start >= h.states || h.start < (h.states ? 0 : -1)) return NULL;
  elements += 4 * h.states;
  int64_t begin = (uint32_t)int_at(ends), size = (uint32_t)int_at(ends + 4 * h.states), finals = 0;
  if (begin || size > (end - elements) / (int64_t)sizeof(element)) return NULL;
  for (int64_t s = 1, stop; s <= h.states; s++, begin = stop) {
    stop = (uint32_t)int_at(ends + 4 * s);
    if (stop < begin || stop > size) return NULL;
    for (int64_t i = begin; i < stop; i++) {
      element e;
      memcpy(&e, elements + i * (int64_t)sizeof e, sizeof e);
      int is_final = e.label == NOT_AN_ARC;
      if (e.label < NOT_AN_ARC || e.label > label_dim || e.target < -1 || e.target >= h.states || !isfinite(e.weight) ||
          is_final != (e.target == -1) || (is_final && i != begin))
        return NULL;
      finals += is_final;
    }
  }
  return h.arcs == size - finals ? elements + size * (int64_t)sizeof(element) : NULL;
}

static const uint8_t *end_of_weights(const uint8_t *at, const uint8_t *end, int64_t wanted) {
  int32_t size = !at || end - at < 4 ? -1 : int_at(at);
  if ((size && size != wanted) || (end - at - 4) / 4 < size) return NULL;
  for (at += 4; size > 0; size--, at += 4)
    if (!(float_at(at) >= 0.0f) || isinf(float_at(at))) return NULL;
  return at;
}

static const uint8_t *end_of_piece(const piece *p, const uint8_t *texts, const uint8_t *at, const uint8_t *end) {
  if (!at || end - at < p->size + p->skipped || memcmp(at, texts + p->text, (size_t)p->size)) return NULL;
  return at + p->size + p->skipped;
}

/* The number of entries at the start of the data that have one of the layouts, put into `found`: `most` at most. */
int64_t nn_entries(const uint8_t *data, int64_t size, const uint8_t *texts, const piece *pieces, const layout *layouts,
                   int64_t num_layouts, entry *found, int64_t most) {
  const uint8_t *key = data, *end = data + size, *stop;
  for (int64_t count = 0, number = 0;; count++, key = stop) {
    const uint8_t *at = key, *a, *b, *c, *d;
    stop = NULL;
    while (at < end && *at >= '!' && *at <= '~') at++;
    if (count == most || at == key || end - at < 3 || (*at != ' ' && *at != '\t') || memcmp(at + 1, "\0B", 2)) return count;
    for (int64_t tried = 0; tried < num_layouts && !stop; tried++) {
      const layout *l = layouts + (number = (number + !!tried) % num_layouts);
      const piece *p = pieces + l->first;
      for (a = at + 3; p < pieces + l->last - 2; p++) a = end_of_piece(p, texts, a, end);
      b = a;
      for (int64_t i = 0; i < l->num_fsts; i++) b = end_of_acceptor(b, end, l->label_dim);
      c = end_of_piece(p, texts, b, end);
      d = end_of_weights(c, end, l->num_rows);
      stop = end_of_piece(p + 1, texts, d, end);
    }
    if (!stop) return count;
    found[count] = (entry){number, key - data, at - data, at + 3 - data, stop - data,
                           {a - data, b - data, c + 4 - data, d - data}};
  }
}
