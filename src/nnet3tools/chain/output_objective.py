"""The LF-MMI objective as trainers and diagnostics use it (Kaldi's nnet-chain-training.cc)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from nnet3tools import tensor
from nnet3tools.chain.den_graph import DenominatorGraph, load_denominator_graph
from nnet3tools.chain.device_objective import Buffers, DeviceObjective, Tallies, facts_of, on_device
from nnet3tools.chain.example import NnetChainSupervision
from nnet3tools.chain.languages import LanguageGraphs
from nnet3tools.chain.minibatch import OutputSupervision
from nnet3tools.chain.objective import Facts, compute_chain_objective
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.sequence_objective import SequenceObjective
from nnet3tools.errors import DataError
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.graph.request import IoSpecification
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.training.example import NnetExample
from nnet3tools.training.objective import Ahead, Evaluation, Measured


def den_graph_of(rxfilename: str, nnet: Nnet, model: str) -> DenominatorGraph:
    """The denominator graph read from a den.fst file, checked against a network.

    DataError if the network has no output 'output', or its dimension is not the number of pdfs;
    `model` is the network's name in messages.
    """
    dim = nnet.output_dim("output")
    if dim <= 0:
        raise DataError(f"{model}: the network has no output named 'output'")
    return load_denominator_graph(rxfilename, dim)


class ChainOutputObjective(SequenceObjective):
    """LF-MMI for each output in an example, and cross-entropy for its -xent output.

    If --xent-regularize is not 0, the cross-entropy with the numerator's posteriors is computed.
    Training needs its derivative (`xent_deriv`). Combination of models, which maximizes LF-MMI,
    needs neither this derivative nor the weights of frames.
    """

    def __init__(
        self,
        options: ChainTrainingOptions,
        graph: DenominatorGraph | LanguageGraphs,
        apply_deriv_weights: bool = True,
        xent_deriv: bool = True,
    ) -> None:
        super().__init__(options.xent_regularize, xent_deriv, apply_deriv_weights)
        self._options, self._graph = options, graph
        self._tallies: Tallies | None = None

    def _graph_of(self, output: str) -> DenominatorGraph:
        graph = self._graph
        return graph.of_output(output) if isinstance(graph, LanguageGraphs) else graph

    @staticmethod
    def sequences_of(supervision: OutputSupervision) -> NnetChainSupervision:
        """The chain supervision in an OutputSupervision."""
        return supervision.chain

    def outputs(self, nnet: Nnet, example: NnetExample, need_deriv: bool) -> list[IoSpecification]:
        """Each output followed by its -xent output, if cross-entropy is measured.

        With `need_deriv`, derivatives at the outputs will be given. DataError if an output is not
        in `nnet`, or does not fit the denominator graph.
        """
        found = super().outputs(nnet, example, need_deriv)
        self._check_dimensions(nnet, example)
        return found

    def _check_dimensions(self, nnet: Nnet, example: NnetExample) -> None:
        """Raise DataError if dimensions of the graph, an output and its -xent output differ."""
        for supervision in example.supervisions:
            name = supervision.chain.name
            dim, num_pdfs = nnet.output_dim(name), self._graph_of(name).num_pdfs
            if num_pdfs != dim:
                raise DataError(
                    f"the denominator graph is for {num_pdfs} pdfs, output '{name}' has {dim}"
                )
            if not self._has_xent:
                continue
            if (xent_dim := nnet.output_dim(f"{name}-xent")) != dim:
                raise DataError(
                    f"output '{name}' has {dim} columns, '{name}-xent' {xent_dim}: expected as many"
                )

    def evaluations(
        self, nnet: Nnet, example: NnetExample, computer: NnetComputer, need_deriv: bool
    ) -> list[Evaluation]:
        """For each output, an Evaluation that computes its objective (and -xent's) when run."""
        ahead = getattr(example, "ahead", None)
        if ahead is not None and need_deriv:
            return list(self._on_device(example, computer, ahead))
        return super().evaluations(nnet, example, computer, need_deriv)

    # -- training on a GPU

    def prepare(self, nnet: Nnet, example: NnetExample) -> Ahead | None:
        """Acceptors and row weights of all outputs, for a GPU; None if the host must compute."""
        if not self._xent_deriv or self._lwf_scale != 0.0:
            return None
        facts, arrays = [], []
        for supervision in example.supervisions:
            node = nnet.node_index(supervision.chain.name)
            if node < 0 or not nnet.is_output(node):
                return None
            dim = nnet.output_dim(supervision.chain.name)
            found, own = facts_of(supervision, dim, self._apply_deriv_weights)
            facts.append((found, len(own)))
            arrays += own
        return Ahead(arrays, tuple(facts))

    def _on_device(
        self, example: NnetExample, computer: NnetComputer, ahead: Ahead
    ) -> Iterator[Evaluation]:
        left = iter(ahead.arrays)
        facts: tuple[tuple[Facts, int], ...] = ahead.facts  # type: ignore[assignment]
        for supervision, (known, count) in zip(example.supervisions, facts, strict=True):
            names = self.names_of(supervision)
            buffers = Buffers(
                *(get(n) for n in names for get in (computer.get_output, computer.input_buffer))
            )
            if known.num_rows != len(buffers.output):
                raise DataError(
                    f"the supervision is for {known.num_rows} rows, the output has "
                    f"{len(buffers.output)}"
                )
            if self._tallies is None:
                self._tallies = Tallies(buffers.output)
            run = partial(
                _measure,
                DeviceObjective(self._options, self._graph_of(names[0]), self._tallies),
                names,
                (known, *on_device(known, list(itertools.islice(left, count))), buffers),
            )
            derivs = tuple(d for d in (buffers.deriv, buffers.xent_deriv) if d is not None)
            weight = known.weight * known.num_rows
            yield Evaluation(names, derivs, weight, run, True, known, has_auxiliary=True)

    def report(self) -> None:
        """Log the warnings about objectives computed on a GPU since the last call."""
        if self._tallies is not None:
            self._tallies.warn()

    # -- anything else

    @property
    def _lwf_scale(self) -> float:
        return self._options.lwf_den_scale + self._options.lwf_scale

    def measure(
        self, supervision: OutputSupervision, computer: NnetComputer, derivs: tuple[Array, ...]
    ) -> list[Measured]:
        """The LF-MMI objective of an output and the cross-entropy of its -xent output, if any.

        `derivs` are the arrays for derivatives: none, the output's, or also the -xent
        output's.
        """
        name = supervision.chain.name
        output = computer.get_output(name)
        deriv = derivs[0] if derivs else None
        xent_deriv = None
        if self._has_xent:
            has_place = len(derivs) == 2
            xent_deriv = derivs[1] if has_place else tensor.empty(output.shape, like=output)
        objective = compute_chain_objective(
            self._options,
            self._graph_of(name),
            supervision.chain.supervision,
            output,
            deriv,
            xent_deriv,
        )
        found = [Measured(name, objective.weight, objective.objective, objective.l2_term)]
        if xent_deriv is not None:
            xent = tensor.dot(computer.get_output(f"{name}-xent"), xent_deriv)
            found.append(Measured(f"{name}-xent", objective.weight, xent))
        if deriv is not None:
            self._add_posteriors(supervision, deriv)
        return found

    def _add_posteriors(self, supervision: OutputSupervision, deriv: Array) -> None:
        """Add to `deriv` the term of learning without forgetting (arXiv 2110.07055)."""
        scales = self._lwf_scale
        if supervision.posteriors is None or scales == 0.0:
            return
        if supervision.posteriors.shape != deriv.shape:
            raise DataError(
                f"the example has LWF posteriors of {supervision.posteriors.shape[0]} x "
                f"{supervision.posteriors.shape[1]}, expected {deriv.shape[0]} x {deriv.shape[1]}"
            )
        tensor.add(deriv, tensor.asarray(supervision.posteriors, like=deriv), alpha=scales)


def _measure(objective: DeviceObjective, names: tuple[str, ...], work: Any) -> list[Measured]:
    facts, paths, weights, buffers = work
    total, l2_term, xent = objective.compute(facts, paths, weights, buffers)
    weight = facts.weight * facts.num_rows
    found = [Measured(names[0], weight, total, l2_term)]
    if xent is not None:
        found.append(Measured(names[1], weight, xent))
    return found
