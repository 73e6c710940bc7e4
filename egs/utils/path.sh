# Puts the programs on PATH and makes their Python environment on first use.
# NNET3TOOLS_EXTRA, if a recipe sets it, names what else it needs (see bin/setup-env).
# --help of a recipe, whose arguments are seen here, needs no environment.
case " $* " in *" --help "*) return 0 ;; esac
NNET3TOOLS_ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
"$NNET3TOOLS_ROOT/bin/setup-env" ${NNET3TOOLS_EXTRA:-}
trap 'trap - INT; echo "$0: stopped; called again, it goes on with an unfinished training" >&2; kill -INT $$' INT
export NNET3TOOLS_ROOT PATH="$NNET3TOOLS_ROOT/bin:$NNET3TOOLS_ROOT/.venv/bin:$PATH"
export LC_ALL=C
# the matrices here are too small for BLAS threads to pay
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
