"""Commands that run components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.command import Command, command
from nnet3tools.program.component_facts import ComponentFacts, ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.groups import CommandGroup
from nnet3tools.program.operands import (
    Accesses,
    AccessType,
    Component,
    Memo,
    Names,
    Precomputed,
    Submatrix,
    Tables,
)

READ, WRITE, READ_WRITE = AccessType.READ, AccessType.WRITE, AccessType.READ_WRITE


@command(4)
class Propagate(Command):
    """A command that runs a component forward.

    `precomputed` is the number of its precomputed indexes (0: none), `memo` a number that it
    shares with the Backprop that uses its memo (0: no memo). With `store_stats` the component
    adds to statistics.
    """

    component: Component
    precomputed: Precomputed
    input: Submatrix
    output: Submatrix
    memo: Memo = 0
    store_stats: bool = False

    TEXT: ClassVar[str] = "{component}.Propagate({precomputed}, {input}, &{output})"
    OPTIONAL: ClassVar[tuple[str, ...]] = ("input",)

    def problem(self, tables: Tables) -> str:
        component = tables.components[self.component]
        places = self.input, self.output
        if problem := _precomputed_problem(tables, self.precomputed, self.component, *places):
            return problem
        if self.input == 0:
            if component.simple:
                return "a simple component needs an input"
        else:
            if problem := _dim_problem(tables, self.input, component.input_dim, "input"):
                return problem
            if component.simple and tables.rows(self.input) != tables.rows(self.output):
                return (
                    f"input has {tables.rows(self.input)} rows, output {tables.rows(self.output)}"
                )
            if tables.overlap(self.input, self.output):
                if not tables.same(self.input, self.output):
                    return "input and output overlap"
                if not component.propagate_in_place:
                    return "the component cannot propagate in place"
        if self.memo < 0 or (self.memo and not component.uses_memo):
            return "the component keeps no memo"
        if self.store_stats and not component.stores_stats:
            return "the component stores no statistics"
        return _dim_problem(tables, self.output, component.output_dim, "output")

    @classmethod
    def accesses_of(
        cls, group: CommandGroup, computation: Computation, components: ComponentTable
    ) -> Iterator[Accesses]:
        adds = components.column("propagate_adds", group.column("component"))
        yield Accesses(group.positions, group.column("input"), READ)
        yield Accesses(group.positions, group.column("output"), np.where(adds, READ_WRITE, WRITE))

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        rows = computation.submatrices[self.output].num_rows
        indexes = computation.component_precomputed_indexes[self.precomputed].data
        return nnet.component(self.component).propagate_flops(rows, indexes)


@command(5)
class Backprop(Command):
    """A command that runs a component backward and updates its parameters (or their gradient).

    Submatrix 0 stands for values, or an input derivative, that are not needed. `precomputed` is
    the number of its precomputed indexes, `memo` that of its Propagate's memo; 0: none.
    """

    component: Component
    precomputed: Precomputed
    in_value: Submatrix
    out_value: Submatrix
    out_deriv: Submatrix
    in_deriv: Submatrix
    memo: Memo = 0

    TEXT: ClassVar[str] = "{component}.Backprop({precomputed}, {in_value}, {out_value}, {out_deriv}"
    UPDATES: ClassVar[bool] = True
    """Whether parameters change."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ("in_value", "out_value", "in_deriv")

    def problem(self, tables: Tables) -> str:
        component = tables.components[self.component]
        places = self.in_value or self.in_deriv, self.out_deriv
        if problem := _precomputed_problem(tables, self.precomputed, self.component, *places):
            return problem
        if component.backprop_needs_input and not self.in_value:
            return "the component needs its input for backprop"
        if component.backprop_needs_output and not self.out_value:
            return "the component needs its output for backprop"
        # Kaldi's joining of model updates leaves such behind where a component is updatable.
        if not self.in_deriv and not component.updatable:
            return "this backprop has no effect"
        operands = (
            (self.in_value, component.input_dim, "input"),
            (self.in_deriv, component.input_dim, "input derivative"),
            (self.out_value, component.output_dim, "output"),
            (self.out_deriv, component.output_dim, "output derivative"),
        )
        for submatrix, dim, what in operands:
            if submatrix and (problem := _dim_problem(tables, submatrix, dim, what)):
                return problem
        rows_problem = self._rows_problem(tables, component.simple)
        return rows_problem or self._alias_problem(tables, component)

    def _rows_problem(self, tables: Tables, simple: bool) -> str:
        out_deriv, input_side = tables.rows(self.out_deriv), self.in_deriv or self.in_value
        in_rows = tables.rows(input_side) if input_side else out_deriv
        pairs = (
            (tables.rows(self.in_value) if self.in_value else in_rows, in_rows),
            (tables.rows(self.out_value) if self.out_value else out_deriv, out_deriv),
            (out_deriv, in_rows if simple else out_deriv),
        )
        for a, b in pairs:
            if a != b:
                return f"operands of {a} and {b} rows do not fit together"
        return ""

    def _alias_problem(self, tables: Tables, component: ComponentFacts) -> str:
        if not self.in_deriv:
            return ""
        if tables.overlap(self.in_deriv, self.out_deriv):
            if not tables.same(self.in_deriv, self.out_deriv):
                return "input and output derivative overlap"
            if not component.backprop_in_place:
                return "the component cannot backprop in place"
        for value in (self.in_value, self.out_value):
            if value and tables.overlap(self.in_deriv, value):
                return "the input derivative overlaps a value that backprop reads"
        return ""

    @classmethod
    def accesses_of(
        cls, group: CommandGroup, computation: Computation, components: ComponentTable
    ) -> Iterator[Accesses]:
        adds = components.column("backprop_adds", group.column("component"))
        for name in ("in_value", "out_value", "out_deriv"):
            yield Accesses(group.positions, group.column(name), READ)
        yield Accesses(group.positions, group.column("in_deriv"), np.where(adds, READ_WRITE, WRITE))

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        rows = computation.submatrices[self.out_deriv].num_rows
        indexes = computation.component_precomputed_indexes[self.precomputed].data
        updates = self.UPDATES and computation.need_model_derivative
        component = nnet.component(self.component)
        return component.backprop_flops(rows, indexes, bool(self.in_deriv), updates)

    def text(self, names: Names) -> str:
        update = self.UPDATES and names.need_model_derivative
        in_deriv = f"&{names.submatrix(self.in_deriv)}" if self.in_deriv else "NULL"
        model = "[component-pointer]" if update else "NULL"
        return f"{Command.text(self, names)}, {model}, {in_deriv})"


@command(6)
class BackpropNoModelUpdate(Backprop):
    """A Backprop command that does not update the component's parameters."""

    UPDATES: ClassVar[bool] = False


def _precomputed_problem(
    tables: Tables, precomputed: int, component_index: int, source: int, result: int
) -> str:
    if not precomputed:
        return ""
    component = tables.components[component_index]
    if component.simple:
        return "a simple component has no precomputed indexes"
    data = tables.computation.component_precomputed_indexes[precomputed].data
    if data is None:
        return f"precomputed indexes {precomputed} are empty"
    if data.type_name != component.indexes_type:
        return f"precomputed indexes {precomputed} are of type {data.type_name}"
    rows = tables.rows(source), tables.rows(result)
    if source and not data.fits(tables.nnet.component(component_index), *rows):
        name = tables.nnet.component_names[component_index]
        return (
            f"precomputed indexes {precomputed} are not for component '{name}' as it is here with "
            f"{rows[0]} input and {rows[1]} output rows"
        )
    return ""


def _dim_problem(tables: Tables, submatrix: int, dim: int, what: str) -> str:
    if tables.cols(submatrix) == dim:
        return ""
    return f"{what} has {tables.cols(submatrix)} columns, the component's dimension is {dim}"
