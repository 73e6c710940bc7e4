"""Random programs without components."""

import numpy as np

from nnet3tools.program.commands import (
    AcceptInput,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    AllocMatrix,
    CompressMatrix,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    DeallocMatrix,
    DecompressMatrix,
    MatrixAdd,
    MatrixCopy,
    ProvideOutput,
    SetConst,
    SwapMatrix,
)
from support.handmade import Program

COLS = 4


class Generator:
    """Random sound programs over matrices of COLS columns."""

    def __init__(self, nnet, seed):
        self.rng = np.random.default_rng(seed)
        self.p = Program(nnet)
        self.alive = []
        self.compressed = []

    def number(self, low, high):
        return int(self.rng.integers(low, high))

    def pick(self, items):
        return items[self.number(0, len(items))]

    def alpha(self):
        return float(self.pick([1.0, 1.0, -0.5, 2.0]))

    def block(self, rows=None):
        """Some rows of a matrix that is alive."""
        s = self.pick(self.alive)
        size = self.p.computation.submatrices[s].num_rows
        if rows is None:
            rows = self.number(1, size + 1)
        if rows > size:
            return None
        return self.p.computation.new_submatrix(s, self.number(0, size - rows + 1), rows)

    def disjoint(self, a, b):
        x, y = (self.p.computation.submatrices[s] for s in (a, b))
        return x.matrix_index != y.matrix_index

    def add_command(self):
        c, add = self.p.computation, self.p.add
        kind = self.number(0, 13)
        if kind <= 1:
            s = self.p.matrix(f"m{len(c.matrices)}", self.number(2, 7), COLS)
            add(AllocMatrix(s), SetConst(s, float(np.float32(self.rng.normal()))))
            self.alive.append(s)
            return
        if kind == 2 and len(self.alive) > 3:
            s = self.alive.pop(self.number(0, len(self.alive)))
            add(DeallocMatrix(s))
            return
        if kind == 3:
            old = self.alive.pop(self.number(0, len(self.alive)))
            s = self.p.matrix(f"m{len(c.matrices)}", c.submatrices[old].num_rows, COLS)
            add(SwapMatrix(s, old))
            self.alive.append(s)
            return
        if kind == 4 and len(self.alive) > 3:
            s = self.alive.pop(self.number(0, len(self.alive)))
            add(CompressMatrix(s, 2, False, 0.0))
            self.compressed.append(s)
            return
        if kind == 5 and self.compressed:
            self.alive.append(self.compressed.pop())
            add(DecompressMatrix(self.alive[-1]))
            return
        dest, src = self.block(), self.block()
        if not self.disjoint(dest, src):
            return
        rows, height = c.submatrices[dest].num_rows, c.submatrices[src].num_rows
        picks = self.rng.integers(-1, height, rows).astype(np.int32)
        if kind in (6, 7):
            same = self.block(rows)
            if same and self.disjoint(dest, same):
                add((MatrixCopy if kind == 6 else MatrixAdd)(dest, same, self.alpha()))
        elif kind == 8:
            add(CopyRows(dest, src, c.new_indexes(picks), self.alpha()))
        elif kind == 9:
            add(AddRows(dest, src, c.new_indexes(picks), self.alpha()))
        elif kind == 10:
            begin = self.rng.integers(0, height, rows)
            end = np.array([self.number(b + 1, height + 1) for b in begin])
            ranges = np.stack([begin, end], 1)
            ranges[self.rng.random(rows) < 0.3] = -1
            add(AddRowRanges(dest, src, c.new_indexes_ranges(ranges), self.alpha()))
        else:
            self.add_multi(kind, dest, rows)

    def add_multi(self, kind, one, rows):
        c = self.p.computation
        others = [s for s in self.alive if self.disjoint(s, one)]
        if not others:
            return
        candidates = [(s, r) for s in others for r in range(c.submatrices[s].num_rows)]
        order = self.rng.permutation(len(candidates))[:rows]
        pairs = [candidates[i] for i in order] + [(-1, -1)] * (rows - len(order))
        pairs = np.array(pairs)[self.rng.permutation(rows)]
        if kind == 11:
            cls = self.pick([CopyRowsMulti, AddRowsMulti])
        else:
            cls = self.pick([CopyToRowsMulti, AddToRowsMulti])
        alpha = 1.0 if cls is CopyToRowsMulti else self.alpha()
        self.p.add(cls(one, c.new_indexes_multi(pairs), alpha))


def random_program(nnet, seed, num_commands=60):
    """A program with one input and one output, and the node numbers of these."""
    g = Generator(nnet, seed)
    source, sink = nnet.node_index("input"), nnet.node_index("output")
    first = g.p.matrix("input", 6, COLS)
    g.p.add(AcceptInput(first, source))
    g.alive.append(first)
    for _ in range(2):
        s = g.p.matrix(f"m{len(g.p.computation.matrices)}", 5, COLS)
        g.p.add(AllocMatrix(s), SetConst(s, 0.25))
        g.alive.append(s)
    for _ in range(num_commands):
        g.add_command()
    for s in g.compressed:
        g.p.add(DecompressMatrix(s))
        g.alive.append(s)
    out = g.p.matrix("out", 3, COLS)
    g.p.add(AllocMatrix(out), SetConst(out))
    for s in g.alive:
        rows = g.p.computation.submatrices[s].num_rows
        ranges = g.p.computation.new_indexes_ranges([[0, rows], [0, 1], [rows - 1, rows]])
        g.p.add(AddRowRanges(out, s, ranges), DeallocMatrix(s))
    g.p.add(ProvideOutput(out, sink))
    return g.p.computation
