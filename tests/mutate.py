#!/usr/bin/env python3
"""Mutation testing of a room: how many small changes of its code do the tests notice?

    tests/mutate.py optimizer                      # 60 mutants; lists those that survive
    tests/mutate.py chain --mutants 200 --seed 1 --jobs 2

A mutant is the room with one comparison, operator, constant or condition changed. One process
imports all tests and runs them once, to find out which of them call which functions. For each
mutant it forks a process that changes the function in memory and runs the tests that call it, the
fastest first, until one fails. Where the changed line is executed while modules are imported, the
forked process imports them anew.

A mutant whose tests take more than two minutes of processor time, half an hour or 4 GB of memory
counts as killed; one in a function that no test calls survives. Messages of errors, logging,
annotations and `__all__` are not mutated. Exit status 1 if fewer than 90 % of the mutants are
killed.
"""

import argparse
import ast
import builtins
import copy
import gc
import os
import pickle
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "src/nnet3tools"
CPU_SECONDS, SECONDS, MEMORY = 120, 1800, 4 << 30
ALSO = {
    "compiler": ("executor", "optimizer", "program"),
    "optimizer": ("executor", "compiler", "program"),
    "executor": ("training", "cli", "cuda/test_cuda_choice.py"),
    "chain": ("training", "cuda/test_cuda_chain.py", "cuda/test_cuda_chain_graphs.py"),
    "training": ("roundtrip", "cuda/test_cuda_transfers.py"),
}
"""Other folders of tests that check a room."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NOT_MUTATED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom, ast.AnnAssign)
LOGGING = ("log", "vlog", "warn", "note")


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the number of a node in the order of `_mutable`, in words."""

    path: Path
    node: int
    line: int
    function: int
    """The line of the innermost function around the node; 0 outside of functions."""
    change: str

    @property
    def place(self) -> str:
        """File, line and change."""
        return f"{self.path.relative_to(PACKAGE.parent)}:{self.line}: {self.change}"


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that can be mutated, in a fixed order."""
    if isinstance(node, NOT_MUTATED) or _is_logging(node):
        return
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
        return
    is_number = isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float))
    if is_number or isinstance(node, (ast.Compare, ast.BinOp, ast.BoolOp, ast.If, ast.UnaryOp)):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child)


def _is_logging(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(LOGGING)


def _mutate(node: ast.AST) -> str:
    """Change a node in place; the change in words, "" if there is none for it."""
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.If):
        before = f"if {ast.unparse(node.test)}"
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return f"{before}  ->  negated"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    after = ast.unparse(node)
    return f"{before}  ->  {after}" if after != before else ""


def mutants(room: str) -> list[Mutant]:
    """All mutants of a room."""
    found = []
    for path in sorted((PACKAGE / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        begins = {}
        for function in ast.walk(tree):  # outer functions come before those that they hold
            if isinstance(function, ast.FunctionDef):
                last = function.end_lineno or 0
                begins |= dict.fromkeys(range(function.body[0].lineno, last + 1), function.lineno)
        for number, node in enumerate(_mutable(tree)):
            if change := _mutate(copy.deepcopy(node)):
                line = node.lineno  # type: ignore[attr-defined]
                found.append(Mutant(path, number, line, begins.get(line, 0), change))
    return found


# -- code


def _instrumented(path: Path) -> CodeType:
    """The code of a file in which each function first calls `_mutate_hit` with its place."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            (call,) = ast.parse(f"_mutate_hit(({str(path)!r}, {node.lineno}))").body
            for part in ast.walk(call):
                ast.copy_location(part, node.body[0])
            node.body.insert(0, call)
    return compile(tree, str(path), "exec")


def _mutated(mutant: Mutant) -> CodeType:
    tree = ast.parse(mutant.path.read_text())
    _mutate(list(_mutable(tree))[mutant.node])
    return compile(ast.fix_missing_locations(tree), str(mutant.path), "exec")


def _load(compiled: Callable[[Path], CodeType | None]) -> None:
    """Let modules be loaded from the code that `compiled` has for their files, if it has any."""
    get_code = SourceFileLoader.get_code

    def instead(loader: SourceFileLoader, name: str) -> object:
        return compiled(Path(loader.path)) or get_code(loader, name)

    SourceFileLoader.get_code = instead  # type: ignore[method-assign, assignment]


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _replace(code: CodeType) -> None:
    """Give all functions of a file that is loaded the code that they have in `code`."""
    codes = {(c.co_qualname, c.co_firstlineno): c for c in _nested(code)}
    for function in gc.get_objects():
        if isinstance(function, FunctionType):
            place = function.__code__.co_qualname, function.__code__.co_firstlineno
            if function.__code__.co_filename == code.co_filename and place in codes:
                function.__code__ = codes[place]


# -- running

Place = tuple[str, int]
"""File and line of a function."""


class Runner:
    """A plugin of pytest: after all tests are imported, it runs them and the mutants."""

    def __init__(self, chosen: list[Mutant], jobs: int) -> None:
        self._chosen, self._jobs = chosen, jobs
        self._called: set[Place] = set()
        self.survivors: list[Mutant] = []
        self.imported: list[tuple[Mutant, list[str]]] = []
        """Mutants of lines that imports execute, and the tests of their modules."""
        files = {mutant.path for mutant in chosen}
        _load(lambda path: _instrumented(path) if path in files else None)
        builtins._mutate_hit = self._called.add  # type: ignore[attr-defined]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find the tests of each function; run the mutants."""
        at_import = set(self._called)
        tests = _in_child(lambda: self._tests_of_functions(session.items))
        running: dict[int, Mutant] = {}
        for mutant in self._chosen:
            place = str(mutant.path), mutant.function
            if not mutant.function or place in at_import:
                of_file = [
                    i for (path, _), found in tests.items() if path == place[0] for i in found
                ]
                names = [session.items[i].nodeid for _, i in sorted(of_file)]
                self.imported.append((mutant, list(dict.fromkeys(names))))
                continue
            while len(running) >= self._jobs:
                self._wait(running)
            items = [session.items[i] for _, i in sorted(tests.get(place, []))]
            running[_fork(lambda m=mutant, i=items: _run_items(m, i))] = mutant  # type: ignore[misc]
        while running:
            self._wait(running)
        return True

    def _tests_of_functions(self, items: list[pytest.Item]) -> dict[Place, list[tuple[float, int]]]:
        """Function -> seconds and number of each test that calls it."""
        found: dict[Place, list[tuple[float, int]]] = {}
        for number, item in enumerate(items):
            self._called.clear()
            began = time.process_time()
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            for place in self._called:
                found.setdefault(place, []).append((time.process_time() - began, number))
        return found

    def _wait(self, running: dict[int, Mutant]) -> None:
        child, status = os.wait()
        self.note(running.pop(child), status)

    def note(self, mutant: Mutant, status: int) -> None:
        """Keep the mutants whose tests all passed."""
        if status == 0:
            self.survivors.append(mutant)


def _fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked process without output; its status is what `work` returns."""
    if (child := os.fork()) == 0:
        status = 1
        try:
            output = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(output, stream)
            status = int(bool(work()))
        finally:
            os._exit(status)
    return child


def _in_child(work: Callable[[], object]) -> Any:
    """What `work` returns in a forked process."""
    reading, writing = os.pipe()

    def send() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(work(), pipe)

    child = _fork(send)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pickle.load(pipe)
    os.waitpid(child, 0)
    return found


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 9))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.alarm(SECONDS)


def _run_items(mutant: Mutant, items: list[pytest.Item]) -> bool:
    """Run tests on a mutant of a module that is loaded; whether one failed."""
    _limit()
    code = _mutated(mutant)
    _replace(code)
    _load(lambda path: code if path == mutant.path else None)  # if a test imports it
    for number, item in enumerate(items):
        following = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            return True
    return False


def _run_anew(mutant: Mutant, tests: list[str]) -> int:
    """Run tests on a mutant of a module that is not loaded yet; pytest's status."""
    _limit()
    code = _mutated(mutant)
    _load(lambda path: code if path == mutant.path else None)
    return pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]) if tests else 0


def main() -> int:
    """Run the mutants, report the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("room", choices=sorted(ALSO))
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    every = mutants(options.room)
    chosen = random.Random(options.seed).sample(every, min(options.mutants, len(every)))
    os.chdir(TESTS.parent)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    sys.path.insert(0, str(PACKAGE.parent))
    folders = [str(TESTS / folder) for folder in (options.room, *ALSO[options.room])]

    def in_memory() -> tuple[list[Mutant], list[tuple[Mutant, list[str]]]]:
        runner = Runner(chosen, options.jobs)
        pytest.main(["-q", "-p", "no:cacheprovider", *folders], plugins=[runner])
        return runner.survivors, runner.imported

    survivors, imported = _in_child(in_memory)
    for mutant, tests in imported:
        child = _fork(lambda m=mutant, t=tests: _run_anew(m, t))  # type: ignore[misc]
        if os.waitpid(child, 0)[1] == 0:
            survivors.append(mutant)
    for mutant in survivors:
        print(f"survived: {mutant.place}")
    killed = len(chosen) - len(survivors)
    print(f"{options.room}: {killed} of {len(chosen)} mutants killed ({len(every)} in all)")
    return int(killed < 0.9 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
