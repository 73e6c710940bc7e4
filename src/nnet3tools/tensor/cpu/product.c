/* A part of a product of matrices, by BLAS: the steps [begin, end), each of `step` rows of the output. The
   last step has all the rows that are left. */

typedef struct {
  void *gemm;
  i64 is_wide;                     /* whether gemm takes sizes of 64 bits */
  i64 step;
  i64 flip_a, flip_b;
  i64 rows, columns, inner;
  const f64 *alpha;
  const T *a;
  i64 a_stride;
  const T *b;
  i64 b_stride;
  f64 beta;
  T *out;
  i64 out_stride;
} TYPED(prod_arguments);

typedef void TYPED(prod_gemm_wide)(int, int, int, i64, i64, i64, T, const T *, i64, const T *, i64, T, T *, i64);
typedef void TYPED(prod_gemm)(int, int, int, s32, s32, s32, T, const T *, s32, const T *, s32, T, T *, s32);

void TYPED(prod)(const TYPED(prod_arguments) *p, i64 begin, i64 end) {
  enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
  const i64 first = begin * p->step;
  const i64 rows = ((end + 1) * p->step > p->rows ? p->rows : end * p->step) - first;
  const T *a = p->a + (p->flip_a ? first : first * p->a_stride), *b = p->b;
  T *out = p->out + first * p->out_stride;
  const int op_a = p->flip_a ? TRANS : NO_TRANS, op_b = p->flip_b ? TRANS : NO_TRANS;
  const T alpha = (T)*p->alpha, beta = (T)p->beta;
  if (p->is_wide)
    ((TYPED(prod_gemm_wide) *)p->gemm)(ROW_MAJOR, op_a, op_b, rows, p->columns, p->inner, alpha, a,
                                       p->a_stride, b, p->b_stride, beta, out, p->out_stride);
  else
    ((TYPED(prod_gemm) *)p->gemm)(ROW_MAJOR, op_a, op_b, rows, p->columns, p->inner, alpha, a,
                                  p->a_stride, b, p->b_stride, beta, out, p->out_stride);
}
