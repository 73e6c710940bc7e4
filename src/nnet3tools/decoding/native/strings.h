/* Sequences of transition ids as a tree with one node for each: equal sequences have equal nodes. */

typedef struct { int32_t parent, id, length; } string_node;

typedef struct {
  growing nodes; /* string_node; the first is the empty sequence */
  int32_t *table;
  int64_t table_size;
  growing scratch; /* int32_t */
} string_tree;

static string_node *nodes_of(const string_tree *t) { return t->nodes.data; }

static int64_t string_place(const string_tree *t, int32_t parent, int32_t id) {
  const string_node *nodes = nodes_of(t);
  int64_t place = (int64_t)(mixed((uint64_t)(uint32_t)parent << 32 | (uint32_t)id));
  for (place &= t->table_size - 1; t->table[place] >= 0; place = (place + 1) & (t->table_size - 1)) {
    const string_node *found = nodes + t->table[place];
    if (found->parent == parent && found->id == id) break;
  }
  return place;
}

static int larger_string_table(string_tree *t) {
  int32_t *table = table_of(t->table_size * 2);
  if (!table) return FAILED;
  free(t->table);
  t->table = table;
  t->table_size *= 2;
  for (int32_t i = 1; i < t->nodes.size; i++) {
    const string_node *node = nodes_of(t) + i;
    t->table[string_place(t, node->parent, node->id)] = i;
  }
  return YES;
}

static int start_strings(string_tree *t) {
  t->nodes.each = sizeof(string_node);
  t->scratch.each = sizeof(int32_t);
  t->table_size = 1024;
  t->table = table_of(t->table_size);
  string_node *empty = added(&t->nodes, 1);
  if (!t->table || !empty) return FAILED;
  *empty = (string_node){-1, 0, 0};
  return YES;
}

/* The sequence followed by one id, or FAILED. */
static int32_t with_id(string_tree *t, int32_t string, int32_t id) {
  int64_t place = string_place(t, string, id);
  if (t->table[place] >= 0) return t->table[place];
  if (t->nodes.size >= INT32_MAX) return FAILED;
  string_node *node = added(&t->nodes, 1);
  if (!node) return FAILED;
  *node = (string_node){string, id, nodes_of(t)[string].length + 1};
  int32_t made = (int32_t)(t->nodes.size - 1);
  t->table[place] = made;
  if (t->nodes.size * 2 > t->table_size && larger_string_table(t) < 0) return FAILED;
  return made;
}

static int32_t with_ids(string_tree *t, int32_t string, const int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count && string >= 0; i++) string = with_id(t, string, ids[i]);
  return string;
}

/* The ids from number `begin` on, in the tree's scratch memory. */
static const int32_t *ids_after(string_tree *t, int32_t string, int32_t begin) {
  const string_node *node = nodes_of(t) + string;
  int32_t count = node->length - begin;
  int32_t *ids = room(&t->scratch, count > 0 ? count : 1);
  if (!ids) return NULL;
  for (int32_t i = count - 1; i >= 0; i--, node = nodes_of(t) + node->parent) ids[i] = node->id;
  return ids;
}

static int32_t cut_to(const string_tree *t, int32_t string, int32_t length) {
  while (nodes_of(t)[string].length > length) string = nodes_of(t)[string].parent;
  return string;
}

/* Whether the first of two sequences with equal weights is preferred: the shorter one, or the one with the
   greater id at the first difference. */
static int is_preferred(const string_tree *t, int32_t one, int32_t other) {
  const string_node *nodes = nodes_of(t);
  if (nodes[one].length != nodes[other].length) return nodes[one].length < nodes[other].length;
  int is_greater = NO;
  for (; one != other; one = nodes[one].parent, other = nodes[other].parent)
    if (nodes[one].id != nodes[other].id) is_greater = nodes[one].id > nodes[other].id;
  return is_greater;
}

static int32_t common_beginning(const string_tree *t, int32_t one, int32_t other) {
  const string_node *nodes = nodes_of(t);
  one = cut_to(t, one, nodes[other].length);
  other = cut_to(t, other, nodes[one].length);
  for (; one != other; one = nodes[one].parent) other = nodes[other].parent;
  return one;
}
