"""Optimized programs compute what the unoptimized one does, for random networks and requests.

Every case goes through all passes, through the shortcut, through one pass alone and through all
but one (in turn; with --slow every pass alone, and all but each). The checker sees every program
between passes; memory starts as NaN.
"""

import pytest

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.pipeline import optimize
from nnet3tools.program.checker import check_computation
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import write_computation
from support.equivalence import describe, difference, run, variants
from support.io_specifications import io_range
from support.random_networks import Case, parse, random_case
from support.streams import bytes_of

VARIANTS = list(variants())
NUM_CASES = 156
"""Every kind of network with every pass alone, once; a thousand more cases are slow tests."""
_ALONE = [v for v in VARIANTS if v[0].startswith("only")]
_ALL_BUT = [v for v in VARIANTS if v[0].startswith("all but")]


class Tried:
    """One case: its unoptimized program, what that gives, and what variants were found to do."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.program = Compiler(case.nnet).compile([case.request], CompilerOptions())
        check_computation(self.program, case.nnet, case.request, check_rewrite=True)
        self.expected = run(case, self.program)
        self._sound = {bytes_of(write_computation, self.program)}
        """Programs that were found to compute what is expected (passes often change nothing)."""

    def optimized(self, options: OptimizeOptions) -> Computation:
        case = self.case
        context = PassContext(case.nnet, options, case.request.max_output_time)
        out = optimize(self.program, context, check=True)
        check_computation(out, case.nnet, case.request)
        return out

    def problem(self, program: Computation) -> str:
        """How what a program gives differs from what is expected; each program runs but once."""
        if (file := bytes_of(write_computation, program)) in self._sound:
            return ""
        found = difference(self.expected, run(self.case, program))
        if not found:
            self._sound.add(file)
        return found

    def attempt(self, name: str, options: OptimizeOptions) -> str:
        """What is wrong with the program that these options give; "" if nothing."""
        try:
            return self.problem(self.optimized(options))
        except Exception as error:
            return " ".join([repr(error), *getattr(error, "__notes__", ())])

    def table(self) -> str:
        """Which passes it takes for the failure: each alone, and all but each."""
        rows = [(name, self.attempt(name, options)) for name, options in VARIANTS]
        return "\n".join(f"{name:36} {problem or 'ok'}" for name, problem in rows)


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_optimized_programs_compute_the_same(seed: int) -> None:
    case = random_case(seed)
    tried = Tried(case)
    chosen = (VARIANTS[0], _ALONE[seed % len(_ALONE)], _ALL_BUT[seed % len(_ALL_BUT)])
    problems = {name: tried.attempt(name, options) for name, options in chosen}
    compiler = CachingOptimizingCompiler(case.nnet)
    problems["shortcut"] = tried.problem(compiler.compile(case.request))
    if any(problems.values()):
        found = "\n".join(f"{name}: {problem}" for name, problem in problems.items())
        pytest.fail(f"{describe(case)}\n{found}\n{tried.table()}")


def test_the_shortcut_is_taken() -> None:
    """Most regular requests are compiled for two sequences; else the test above shows nothing."""
    taken = 0
    for seed in range(24):
        case = random_case(seed, regular=True)
        compiler = CachingOptimizingCompiler(case.nnet)
        compiler.compile(case.request)
        taken += len(compiler.cache) == 2
    assert taken >= 12


IDENTITY = """
input-node name=input dim=2
output-node name=output input=input
"""
UNCONNECTED = """
input-node name=input dim=2
input-node name=side dim=3
component name=a type=AffineComponent input-dim=2 output-dim=2 param-stddev=1
component-node name=a component=a input=input
output-node name=output input=a
"""


@pytest.mark.parametrize(("text", "wanted"), [(IDENTITY, "input"), (UNCONNECTED, "side")])
def test_programs_with_next_to_nothing_to_do(text: str, wanted: str) -> None:
    """Input handed out unchanged; the derivative of an input that nothing depends on."""
    nnet = parse(text)
    names = [nnet.node_names[node] for node in nnet.input_nodes()]
    request = ComputationRequest(
        [io_range(name, 0, 4, name == wanted) for name in names],
        [io_range("output", 0, 4, True)],
    )
    tried = Tried(Case("small", 0, text, nnet, request))
    assert tried.expected.keys() == {"output", f"d {wanted}"}
    assert not any(tried.attempt(name, options) for name, options in VARIANTS), tried.table()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(30))
def test_every_pass_alone_and_all_but_each(block: int) -> None:
    for seed in range(NUM_CASES + 50 * block, NUM_CASES + 50 * (block + 1)):
        case = random_case(seed)
        tried = Tried(case)
        if any(tried.attempt(name, options) for name, options in VARIANTS):
            pytest.fail(f"{describe(case)}\n{tried.table()}")
