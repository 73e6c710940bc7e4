/* Moves of rows. Row i of a matrix meets the row at the address rows[i] (0: no row), so one kernel
   serves one other matrix or many. Sizes and strides are in elements of type T. */

typedef struct {
  T *matrix;
  T *const *rows;
  i64 size, stride; /* elements in a row of the matrix, and from one row to the next */
  f64 alpha;
} TYPED(rows_arguments);

/* matrix[i] = rows[i], or 0 */
void TYPED(copy_rows)(const TYPED(rows_arguments) *a, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i) {
    T *const row = a->matrix + i * a->stride;
    if (a->rows[i]) memcpy(row, a->rows[i], (size_t)a->size * sizeof(T));
    else memset(row, 0, (size_t)a->size * sizeof(T));
  }
}

/* rows[i] = matrix[i] */
void TYPED(copy_to_rows)(const TYPED(rows_arguments) *a, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i)
    if (a->rows[i]) memcpy(a->rows[i], a->matrix + i * a->stride, (size_t)a->size * sizeof(T));
}

static inline void TYPED(rows_add)(T *out, const T *in, i64 size, T alpha) {
  #pragma omp simd
  for (i64 k = 0; k < size; ++k) out[k] += alpha * in[k];
}

/* matrix[i] += alpha * rows[i] */
void TYPED(add_rows)(const TYPED(rows_arguments) *a, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i)
    if (a->rows[i]) TYPED(rows_add)(a->matrix + i * a->stride, a->rows[i], a->size, (T)a->alpha);
}

/* rows[i] += alpha * matrix[i] */
void TYPED(add_to_rows)(const TYPED(rows_arguments) *a, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i)
    if (a->rows[i]) TYPED(rows_add)(a->rows[i], a->matrix + i * a->stride, a->size, (T)a->alpha);
}

typedef struct {
  T *out;
  const T *src;
  const s32 *ranges; /* (rows of out, 2) */
  i64 size, out_stride, src_stride;
  f64 alpha;
} TYPED(row_ranges_arguments);

/* out[i] += alpha * the sum of src[first:last], (first, last) = ranges[i]: by 64 rows in type T,
   these sums in double precision */
void TYPED(add_row_ranges)(const TYPED(row_ranges_arguments) *a, i64 begin, i64 end) {
  const T alpha = (T)a->alpha;
  for (i64 i = begin; i < end; ++i) {
    const i64 first = a->ranges[2 * i], last = a->ranges[2 * i + 1];
    if (last <= first) continue;
    for (i64 g = 0; g < a->size; g += 256) {
      const i64 width = NN_LEAST(256, a->size - g);
      f64 all[256];
      for (i64 k = 0; k < width; ++k) all[k] = 0;
      for (i64 r0 = first; r0 < last; r0 += 64) {
        T part[256];
        for (i64 k = 0; k < width; ++k) part[k] = 0;
        for (i64 r = r0; r < NN_LEAST(r0 + 64, last); ++r) {
          const T *const row = a->src + r * a->src_stride + g;
          #pragma omp simd
          for (i64 k = 0; k < width; ++k) part[k] += row[k];
        }
        #pragma omp simd
        for (i64 k = 0; k < width; ++k) all[k] += part[k];
      }
      T *const row = a->out + i * a->out_stride + g;
      #pragma omp simd
      for (i64 k = 0; k < width; ++k) row[k] += alpha * (T)all[k];
    }
  }
}
