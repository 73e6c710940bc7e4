"""Training by stochastic gradient descent, as Kaldi's NnetTrainer does it (nnet-training.cc)."""

from collections.abc import Callable, Hashable
from functools import partial

from nnet3tools import tensor
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import DataError, DivergedError, EmptyError, OptionError
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.executor.replay import Replayer, device_capture
from nnet3tools.fast_dataclasses import field
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.nnet.arithmetic import (
    check_natural_gradient,
    freeze_natural_gradient,
    scale_batchnorm_stats,
    scale_nnet,
    zero_stats,
)
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.finite import components_not_finite, quoted
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.orthonormal import constrain_orthonormal, constrained_components, run_now
from nnet3tools.optimizer.cache_files import load_cache, save_cache
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.options import OptionGroup, option
from nnet3tools.tensor.registry import on_host
from nnet3tools.training.example import NnetExample
from nnet3tools.training.loss_scale import LossScale
from nnet3tools.training.objective import Evaluation, FrameObjective, Objective
from nnet3tools.training.reporting import ObjectiveTotals
from nnet3tools.training.running import ExampleRunner
from nnet3tools.training.update import L2Regularization, MaxChange, num_sequences, scale_change

_NO_LIMIT = 3e38
"""A limit above every finite change."""


class NnetTrainerOptions(OptionGroup):
    """Options of nnet3-train (Kaldi's NnetTrainerOptions)."""

    store_component_stats: bool = option(
        True, "If true, store activations and derivatives for nonlinear components during training."
    )
    zero_component_stats: bool = option(
        True,
        "If both this and --store-component-stats are true, then the component stats are zeroed "
        "before training.",
    )
    print_interval: int = option(
        100, "Interval (in minibatches) after which we print out the objective function"
    )
    max_param_change: float = option(
        2.0,
        "The maximum change in parameters allowed per minibatch, measured in Euclidean norm over "
        "the entire model (change will be clipped to this value)",
    )
    momentum: float = option(
        0.0,
        "Momentum constant, e.g. 0.9. The learning rate is automatically multiplied by "
        "(1-momentum), so that the effective learning rate stays the same",
    )
    l2_regularize_factor: float = option(
        1.0,
        "Factor on the l2-regularize values of the components; corrects for the effects of model "
        "averaging when training in parallel",
    )
    batchnorm_stats_scale: float = option(
        0.8,
        "Factor by which the accumulated stats of batchnorm layers are scaled down after each "
        "minibatch, so that those in the final model are fairly fresh",
    )
    backstitch_training_scale: float = option(
        0.0, "Backstitch training factor ('alpha' in the publications); 0 for normal training"
    )
    backstitch_training_interval: int = option(
        1, "Do backstitch training every so many minibatches ('n' in the publications)"
    )
    read_cache: str = option("", "The location from which to read the cached computation")
    write_cache: str = option("", "The location to which to write the cached computation")
    binary_write_cache: bool = option(True, "Write computation cache in binary mode")
    optimization: OptimizeOptions = field(default_factory=OptimizeOptions)
    compiler: CompilerOptions = field(default_factory=CompilerOptions)
    computation: ComputeOptions = field(default_factory=ComputeOptions)

    def check(self) -> None:
        """Raise OptionError if an option's value is out of its range."""
        for name, low, high in (
            ("momentum", 0.0, 1.0),
            ("max_param_change", 0.0, float("inf")),
            ("backstitch_training_scale", 0.0, float("inf")),
            ("backstitch_training_interval", 1, float("inf")),
            ("batchnorm_stats_scale", 0.0, 1.0),
            ("print_interval", 1, float("inf")),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise OptionError(
                    f"invalid --{name.replace('_', '-')}={value}: expected {low} to {high}"
                )
        if self.backstitch_training_scale > 0.0 and self.momentum > 0.0:
            raise OptionError("backstitch training does not go with --momentum")


class NnetTrainer:
    """Trains `nnet` in place, minibatch by minibatch."""

    def __init__(
        self,
        options: NnetTrainerOptions,
        nnet: Nnet,
        like: Array | None = None,
        loss_scaling: bool = False,
        objective: Objective | None = None,
    ) -> None:
        """Prepare to train `nnet` on the device of the array `like` (default: the host).

        --zero-component-stats zeroes the network's statistics. With `loss_scaling` (GPU only)
        derivatives are scaled for half precision. The default of `objective` is FrameObjective.
        """
        options.check()
        self.options = options
        self.nnet = nnet
        self._seed = self._draw_seed()
        if options.zero_component_stats:
            zero_stats(nnet)
        self._delta = nnet.copy()
        scale_nnet(self._delta, 0.0)
        # Which minibatches store statistics or self-repair is decided by the random numbers that
        # Kaldi's compiler leaves.
        self.compiler = CachingOptimizingCompiler(
            nnet, options.optimization, options.compiler, after_exploring=draw_graph_checks
        )
        if options.read_cache:
            load_cache(options.read_cache, self.compiler)
        self._runner = ExampleRunner(
            nnet,
            self.compiler,
            options.computation,
            self._delta,
            need_model_derivative=True,
            store_component_stats=options.store_component_stats,
            like=like,
            objective=objective or FrameObjective(),
        )
        self._num_minibatches = 0
        self.totals: dict[str, ObjectiveTotals] = {}
        """The sums of each output over all minibatches so far."""
        self._constrained = constrained_components(nnet)
        num_updatable = len(nnet.updatable_components())
        self._l2 = L2Regularization(num_updatable, like)
        self._max_change = MaxChange(num_updatable, like)
        on_gpu = not on_host(like)
        self._gpu = like if on_gpu else None
        self._loss_scale = LossScale(like) if on_gpu and loss_scaling else None
        self._run: Callable[[Hashable, Callable[[], None]], None] = run_now
        if options.computation.cuda_graph or not on_gpu:
            capture = device_capture() if on_gpu else None
            self._run = Replayer(self._runner.workspace, capture, repeats=True).run

    def _draw_seed(self) -> int:
        """A new random seed, which both passes of backstitch training use."""
        return tensor.random.rand_int(0, 100000)

    def train(self, example: NnetExample) -> None:
        """Train on one minibatch, as read or as prepared by the object in the property `ahead`."""
        interval = self.options.backstitch_training_interval
        due = self._num_minibatches % interval == self._seed % interval
        with self._runner.ready(example) as ready:
            try:
                if self.options.backstitch_training_scale > 0.0 and due:
                    self._train_backstitch(ready)
                else:
                    self._train_once(ready)
            except DivergedError:  # which names no component
                self._num_minibatches += 1
                self._check_natural_gradient()
                raise
        self._num_minibatches += 1
        if self._num_minibatches % self.options.print_interval == 0:
            self._check_natural_gradient()
            self._runner.report()

    @property
    def ahead(self) -> ExampleRunner | None:
        """The ExampleRunner that prepares the next examples on a GPU; None on a CPU."""
        return self._runner.ahead

    @property
    def run_recorded(self) -> Callable[[Hashable, Callable[[], None]], None]:
        """Function (key, work) that calls `work()` or, in later calls, replays its operations."""
        return self._run

    def print_total_stats(self) -> bool:
        """Log the overall objectives and max-change statistics; returns whether there was data."""
        results = [self._print_total(name, self.totals[name]) for name in sorted(self.totals)]
        if self._loss_scale is not None:
            self._loss_scale.print()
        self._max_change.print(self.nnet, warn=self._loss_scale is None)
        self._check_natural_gradient()
        self._runner.report()
        return any(results)

    def _print_total(self, name: str, totals: ObjectiveTotals) -> bool:
        """Log the overall objective of the output `name`; returns whether it had data."""
        return totals.print_total(name)

    def _check_natural_gradient(self) -> None:
        if self._loss_scale is not None:  # overflows are part of its working
            return
        try:
            check_natural_gradient(self._delta)
        except DivergedError as error:
            number = self._num_minibatches
            if self._gpu is not None:  # where it is noticed late
                number = self._max_change.first_infinite(self.nnet)[0] or number
            raise DivergedError(f"in minibatch {number}, {error}") from None

    def finish(self) -> None:
        """Write the computation cache if --write-cache is given; log the time spent compiling."""
        if self.options.write_cache:
            save_cache(self.options.write_cache, self.compiler, self.options.binary_write_cache)
        self.compiler.log_time()

    # -- one minibatch

    def _train_once(self, example: NnetExample) -> None:
        """Train on one minibatch by a plain step with momentum.

        Components have multiplied their gradients in `_delta`, a network, by the learning rate.
        """
        self._accumulate_change(example, "")
        l2_scale = num_sequences(example.io) * self.options.l2_regularize_factor
        has_l2 = self._l2.prepare(l2_scale, self._delta)
        self._run(("parameter update", has_l2), self._apply_change)
        self._constrain_orthonormal()

    def _apply_change(self) -> None:
        """Add the change (`_delta`) and l2, limited, to the model; keep momentum * `_delta`."""
        o = self.options
        self._l2.apply(self.nnet, self._delta)
        self._update(1.0, 1.0 - o.momentum)
        scale_batchnorm_stats(self.nnet, o.batchnorm_stats_scale)
        if o.momentum != 0.0:
            self._max_change.drop_if_not_applied(self._delta)
        scale_change(self._delta, o.momentum)

    def _update(self, max_change_scale: float, scale: float, is_last: bool = True) -> None:
        """Add `scale` * `_delta` to the model, limited; `max_change_scale` multiplies the limits.

        `is_last` says that the next update is about another minibatch.
        """
        limit = self.options.max_param_change
        if self._loss_scale is not None and limit == 0.0:
            limit = _NO_LIMIT  # changes that are not finite are left out all the same
        self._max_change.apply(self._delta, self.nnet, limit, max_change_scale, scale, is_last)
        if self._loss_scale is not None:
            self._loss_scale.adjust(self._max_change.factor)

    def _constrain_orthonormal(self) -> None:
        with tensor.precise_products():
            constrain_orthonormal(self._constrained, self._run)

    def _train_backstitch(self, example: NnetExample) -> None:
        """Train on one minibatch by a small step back along the gradient and a larger one forward.

        Both steps see the same random numbers; natural gradient learns in the second only.
        """
        self._runner.compile(example)  # before the restart: what it draws is not repeated
        freeze_natural_gradient(self._delta, True)
        self._restart_random_numbers()
        self._backstitch_step(example, is_first=True)
        freeze_natural_gradient(self._delta, False)
        self._restart_random_numbers()
        self._backstitch_step(example, is_first=False)

    def _restart_random_numbers(self) -> None:
        tensor.random.seed(self._seed + self._num_minibatches)

    def _backstitch_step(self, example: NnetExample, is_first: bool) -> None:
        o = self.options
        self._accumulate_change(example, "" if is_first else "_backstitch")
        if is_first:
            max_change_scale = o.backstitch_training_scale
            scale = -o.backstitch_training_scale
        else:
            max_change_scale = scale = 1.0 + o.backstitch_training_scale
            l2_scale = 1.0 / scale * num_sequences(example.io) * o.l2_regularize_factor
            self._l2.prepare(l2_scale, self._delta)
            self._l2.apply(self.nnet, self._delta)
        self._update(max_change_scale, scale, is_last=not is_first)
        if is_first:
            self._constrain_orthonormal()
        else:
            scale_batchnorm_stats(self.nnet, o.batchnorm_stats_scale)
        scale_change(self._delta, 0.0)

    def _accumulate_change(self, example: NnetExample, suffix: str) -> None:
        """Add an example's parameter change to `_delta`; `suffix` is added to names of outputs."""
        computer = self._runner.forward(example)
        self._process_outputs(computer, example, suffix)
        if self._loss_scale is None:
            computer.run()
            return
        keeps_change = self.options.momentum != 0.0
        with self._loss_scale.backward(self._delta, keeps_change, self._run):
            computer.run()

    def _process_outputs(self, computer: NnetComputer, example: NnetExample, suffix: str) -> None:
        place = getattr(example, "place", None)
        for evaluation in self._runner.evaluations(example, computer):
            names = [name + suffix for name in evaluation.names]
            weight = evaluation.weight
            for name in names:
                if name not in self.totals:
                    self.totals[name] = self._new_totals(evaluation)
                self.totals[name].begin(name, self.options.print_interval, self._num_minibatches)
            is_alike = place is not None and evaluation.is_alike
            computer.replay(
                ("objective", *names, place, evaluation.facts) if is_alike else None,
                partial(self._evaluate, evaluation, suffix),
            )
            if weight is not None:
                for name in names:
                    self.totals[name].add_weight(weight)

    def _evaluate(self, evaluation: Evaluation, suffix: str) -> None:
        """Run an evaluation; add its results to the totals of each output's name + `suffix`."""
        for measured in evaluation.run():
            totals = self.totals[measured.name + suffix]
            if evaluation.weight is None:
                totals.add_weight(measured.weight)
            totals.add_objective(measured.objective, measured.auxiliary)
        if self._loss_scale is not None:
            for deriv in evaluation.derivs:
                self._loss_scale.scale_derivative(deriv)

    def _new_totals(self, evaluation: Evaluation) -> ObjectiveTotals:
        if self._gpu is None:
            return ObjectiveTotals()
        dense, auxiliary = evaluation.weight is None, evaluation.has_auxiliary
        return ObjectiveTotals.on(self._gpu, dense, auxiliary)

    def require_finite(self) -> None:
        """Raise DataError if the model, now on the host, has NaN or infinite parameters."""
        if not (bad := components_not_finite(self.nnet)):
            return
        number, names = self._max_change.first_infinite(self.nnet)
        began = (
            f"it began at minibatch {number} with the change of {quoted(names)}"
            if number
            else "all changes of parameters were finite"
        )
        raise DataError(
            f"the trained model holds NaN or infinity in {quoted(bad)} and is not written; {began}"
        )

    def require_data(self, examples: str) -> None:
        """Raise EmptyError, naming the rspecifier `examples`, if no example was trained on."""
        if self._num_minibatches == 0:
            raise EmptyError(f"{examples}: no examples to train on")
