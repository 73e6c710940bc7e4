/* Kaldi's compressed matrices decompressed, many of one shape in one call. The arithmetic is that of
   io/compressed_codes.py, operation by operation, so that all bits agree. */

typedef struct {
  const u8 *const *headers; /* by matrix: where its minimum and range stand, and its codes after them */
  f32 *out;                 /* (matrices, rows, columns) */
  i64 rows, cols;
  const f32 *weights;       /* by matrix, or NULL */
} decompress_arguments;

/* The minimum and the range of matrix i, times its weight. */
static inline void codes_header(const decompress_arguments *a, i64 i, f32 *low, f32 *extent) {
  memcpy(low, a->headers[i], 4);
  memcpy(extent, a->headers[i] + 4, 4);
  if (a->weights) { *low *= a->weights[i]; *extent *= a->weights[i]; }
}

/* "CM": by column four percentiles of 16 bits, then a code of 8 bits for each row, which is read
   against them. Tables take a quarter of the time of choices, which become jumps or several passes. */
void decompress_cm(const decompress_arguments *a, i64 begin, i64 end) {
  static const s32 first[3] = {0, 64, 192};
  static const f64 part[3] = {1 / 64.0, 1 / 128.0, 1 / 63.0};
  const i64 rows = a->rows, cols = a->cols;
  for (i64 i = begin; i < end; ++i) {
    f32 *const q = a->out + i * rows * cols;
    f32 low, extent;
    codes_header(a, i, &low, &extent);
    const f32 step = extent * 1.52590218966964e-05f;
    const u8 *const percentiles = a->headers[i] + 16, *code = percentiles + 8 * cols;
    for (i64 c = 0; c < cols; ++c, code += rows) {
      uint16_t four[4];
      memcpy(four, percentiles + 8 * c, 8);
      f32 v[4];
      for (int k = 0; k < 4; ++k) v[k] = low + step * (f32)four[k];
      const f32 length[3] = {v[1] - v[0], v[2] - v[1], v[3] - v[2]};
      for (i64 r = 0; r < rows; ++r) {
        const s32 k = code[r], j = (k > 64) + (k > 192);
        const f32 above = (f32)(k - first[j]);
        q[r * cols + c] = (f32)((f64)(length[j] * above) * part[j] + (f64)v[j]);
      }
    }
  }
}

/* "CM2": a code of 16 bits for each element, row by row. */
void decompress_cm2(const decompress_arguments *a, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i) {
    f32 *const q = a->out + i * a->rows * a->cols;
    f32 low, extent;
    codes_header(a, i, &low, &extent);
    const f32 step = (f32)((f64)extent * (1.0 / 65535.0));
    for (i64 k = 0; k < a->rows * a->cols; ++k) {
      uint16_t code;
      memcpy(&code, a->headers[i] + 16 + 2 * k, 2);
      const f32 value = (f32)code * step;
      q[k] = value + low;
    }
  }
}

/* "CM3": a code of 8 bits for each element, row by row. */
void decompress_cm3(const decompress_arguments *a, i64 begin, i64 end) {
  for (i64 i = begin; i < end; ++i) {
    f32 *const q = a->out + i * a->rows * a->cols;
    const u8 *const code = a->headers[i] + 16;
    f32 low, extent;
    codes_header(a, i, &low, &extent);
    const f32 step = (f32)((f64)extent * (1.0 / 255.0));
    for (i64 k = 0; k < a->rows * a->cols; ++k) {
      const f32 value = (f32)code[k] * step;
      q[k] = value + low;
    }
  }
}
