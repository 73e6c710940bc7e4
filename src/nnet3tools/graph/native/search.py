"""Kaldi's graph search by the C library."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.node_rules import DescriptorRule, NodeRule
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.search_facts import SearchFacts
from nnet3tools.nnet.indexes import BoolArray, IntArray
from nnet3tools.tensor.cpu.library import load_files

_INPUT, _NEEDS_ALL, _BY_TABLE, _BY_ASKING = range(4)
_MOST_LEAVES = 10
"""The most leaves of a descriptor for which C has a table of answers, with 2 ** leaves entries. For
other descriptors C asks Python."""
_FAILED, _STOPPED = -1, -2


class _Answer(ctypes.Structure):
    """The C struct `answer` of queue_search.c: dependencies that Python has found for C.

    `rows` (num_asked, width) are the dependencies of the cindexes `asked`. `num_cindexes` counts
    all cindexes so far; `new_nodes` are the nodes of the new ones.
    """

    _fields_ = (
        ("num_asked", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("asked", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("num_cindexes", ctypes.c_int64),
        ("new_nodes", ctypes.c_void_p),
    )


_Ask = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32, ctypes.POINTER(_Answer))
_Can = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


class _Graph(ctypes.Structure):
    """The C struct with the arguments of the search: cindexes, nodes, dependencies, callbacks."""

    _fields_ = (
        ("num_cindexes", ctypes.c_int64),
        ("num_outputs", ctypes.c_int64),
        ("max_hops", ctypes.c_int64),
        ("nodes", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("is_input", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("kinds", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("widths", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("ask", _Ask),
        ("can", _Can),
    )


@functools.cache
def search_library() -> ctypes.CDLL | None:
    """The compiled library of queue_search.c; None if it cannot be compiled."""
    return load_files(os.path.dirname(__file__), ("queue_search.c",), "the graph search")


class NativeSearch:
    """Counts the cindexes that Kaldi's search finds, as queue_search.QueueSearch does, in C."""

    def __init__(
        self, library: ctypes.CDLL, builder: GraphBuilder, request: ComputationRequest
    ) -> None:
        self._library, self._builder, self._request = library, builder, request
        self._facts = SearchFacts(builder)
        self._error: BaseException | None = None
        self._kept: list[NDArray[Any]] = []
        """Arrays that C reads: they must stay alive during the call."""

    def sizes(self, max_hops: int) -> list[int]:
        """The number of cindexes found after each of at most `max_hops` hops, breadth first."""
        out = np.empty(max_hops, np.int64)
        graph = self._graph(max_hops)
        run: Any = self._library.nn_queue_search
        run.restype, run.argtypes = ctypes.c_int64, (ctypes.c_void_p, ctypes.c_void_p)
        num_hops = int(run(ctypes.addressof(graph), out.ctypes.data))
        if num_hops == _STOPPED and self._error is not None:
            raise self._error
        if num_hops == _FAILED:
            raise MemoryError
        return out[:num_hops].tolist()

    def _graph(self, max_hops: int) -> _Graph:
        """The arguments of this search as a C struct."""
        builder = self._builder
        store, plan = builder.store, builder.plan
        rows = [
            np.ascontiguousarray(of_node.all(), np.int32) for of_node in builder.dependency_rows
        ]
        outputs = [
            builder.graph.find(plan.nnet.node_index(spec.name), spec.indexes)
            for spec in self._request.outputs
        ]
        kinds = [
            _INPUT if node in plan.input_nodes else _kind(rule)
            for node, rule in enumerate(plan.rules)
        ]
        tables = [
            _address(rule.answers) if kind == _BY_TABLE and isinstance(rule, DescriptorRule) else 0
            for rule, kind in zip(plan.rules, kinds, strict=True)
        ]
        arrays = (
            np.ascontiguousarray(store.nodes, np.int32),
            np.ascontiguousarray(store.slots, np.int32),
            np.ascontiguousarray(store.is_input, np.uint8),
            np.concatenate(outputs).astype(np.int32, copy=False),
            np.array(kinds, np.int64),
            np.array([_address(of_node) for of_node in rows], np.int64),
            np.array([of_node.shape[1] for of_node in rows], np.int64),
            np.array(tables, np.int64),
        )
        self._kept += (*rows, *arrays)
        return _Graph(
            store.size, len(arrays[3]), max_hops, *(_address(array) for array in arrays),
            _Ask(self._ask), _Can(self._can),
        )  # fmt: skip

    def _ask(self, cindex: int, answer: Any) -> int:
        try:
            found = self._facts.dependencies(cindex)
        except BaseException as error:  # an exception must not propagate into C
            self._error = error
            return _STOPPED
        self._kept += found
        answer[0] = _Answer(
            *found.rows.shape, _address(found.ids), _address(found.rows),
            self._facts.num_cindexes, _address(found.new_nodes),
        )  # fmt: skip
        return 0

    def _can(self, cindex: int, row: int, available: int, width: int) -> int:
        try:
            of_row: IntArray = np.frombuffer(ctypes.string_at(row, 4 * width), np.int32)
            are_there: BoolArray = np.frombuffer(ctypes.string_at(available, width), np.bool_)
            return int(self._facts.is_computable(cindex, of_row, are_there))
        except BaseException as error:
            self._error = error
            return _STOPPED


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _kind(rule: NodeRule) -> int:
    if rule.is_strict:
        return _NEEDS_ALL
    few = isinstance(rule, DescriptorRule) and len(rule.leaves) <= _MOST_LEAVES
    return _BY_TABLE if few else _BY_ASKING
