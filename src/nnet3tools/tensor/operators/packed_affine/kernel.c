/* Products of a few rows with float weights in the order in which this file reads them. */

#pragma GCC push_options
#pragma GCC optimize("O2", "fp-contract=fast")

enum { P_PANEL = 32, P_SUMS = 8 };

typedef f32 p_f32 __attribute__((vector_size(32)));
typedef f32 p_f32_anywhere __attribute__((vector_size(32), aligned(4), may_alias));

typedef struct {
  f32 *out;
  const f32 *rows;
  const f32 *weights;  /* (parts, panels, columns, 32) */
  const f32 *bias;     /* by output, or NULL */
  const i64 *starts;   /* by part: the row that output row 0 reads */
  i64 parts, stride, num_rows, num_outputs, columns, out_stride, row_stride, adds;
} packed_affine_arguments;

/* Outputs [at, at + 8 vectors) of `count` rows from `first` on. `count` and `vectors` are constants. */
static inline __attribute__((always_inline)) void
p_tile(const packed_affine_arguments *a, i64 first, i64 at, int count, int vectors) {
  const i64 panels = (a->num_outputs + P_PANEL - 1) / P_PANEL, stride = a->stride * a->row_stride;
  p_f32 sum[P_SUMS] = {{0}};
  for (i64 part = 0; part < a->parts; ++part) {
    const f32 *x = a->rows + a->starts[part] * a->row_stride + first * stride, *const end = x + a->columns;
    const f32 *w = a->weights + (part * panels + at / P_PANEL) * a->columns * P_PANEL + at % P_PANEL;
    const i64 three = 3 * stride;
#define P_ADD(r, number) \
  if (count > r) { const f32 y = number; _Pragma("GCC unroll 4") for (int v = 0; v < vectors; ++v) sum[vectors * r + v] += y * all[v]; }
    for (; x < end; ++x, w += P_PANEL) {
      p_f32 all[4];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) { all[v] = ((const p_f32_anywhere *)w)[v]; NN_KEEP(all[v]); }
      P_ADD(0, x[0]) P_ADD(1, x[stride]) P_ADD(2, x[2 * stride]) P_ADD(3, x[three])
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < count * vectors; ++i) {
    const i64 o = at + 8 * (i % vectors), size = NN_LEAST(a->num_outputs - o, 8);
    f32 *const out = a->out + (first + i / vectors) * a->out_stride + o;
    if (size == 8) {
      if (a->bias) sum[i] += *(const p_f32_anywhere *)(a->bias + o);
      if (a->adds) sum[i] += *(const p_f32_anywhere *)out;
      *(p_f32_anywhere *)out = sum[i];
    } else
      for (i64 k = 0; k < size; ++k) out[k] = sum[i][k] + (a->bias ? a->bias[o + k] : 0.0f) + (a->adds ? out[k] : 0.0f);
  }
}

/* Steps are panels. The weights are read once, a panel stays in the cache for all rows. */
void packed_affine(const packed_affine_arguments *a, i64 begin, i64 end) {
  for (i64 at = begin * P_PANEL; at < end * P_PANEL; at += P_PANEL) {
    i64 row = 0;
    for (; row + 4 <= a->num_rows; row += 4) { p_tile(a, row, at, 4, 2); p_tile(a, row, at + 16, 4, 2); }
    if (row + 2 <= a->num_rows) { p_tile(a, row, at, 2, 4); row += 2; }
    if (row < a->num_rows) p_tile(a, row, at, 1, 4);
  }
}

#pragma GCC pop_options
