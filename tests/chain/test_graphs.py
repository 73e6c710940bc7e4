"""Phone language model, denominator graph, supervisions: against enumeration of all there is."""

import io
import itertools
import math
import re
from collections import defaultdict

import numpy as np
import pytest

from nnet3tools.chain import phone_lm
from nnet3tools.chain.compilation import SupervisionCompiler
from nnet3tools.chain.den_fst import make_denominator_fst, make_normalization_fst
from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.merging import merge_supervisions
from nnet3tools.chain.normalization import Normalizer
from nnet3tools.chain.options import LanguageModelOptions, SupervisionOptions
from nnet3tools.chain.phone_lm import estimate_phone_lm
from nnet3tools.chain.proto_supervision import (
    PhoneLattice,
    ProtoSupervision,
    of_alignment,
    of_lattice,
)
from nnet3tools.chain.supervision import Supervision, SupervisionCutter
from nnet3tools.chain.supervision_posteriors import supervision_posteriors
from nnet3tools.chain.unconstrained import UnconstrainedConverter
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.epsilon import remove_epsilons
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.stream import Writer
from support.tiny_chain import (
    BIPHONE_TREE,
    CHAIN_TOPOLOGY,
    MONO_TREE,
    STATES_TOPOLOGY,
    TRIPHONE_TREE,
    model_of,
)

MODELS = {
    "monophones": model_of(MONO_TREE, CHAIN_TOPOLOGY),
    "biphones": model_of(BIPHONE_TREE, CHAIN_TOPOLOGY),
    "states": model_of(MONO_TREE, STATES_TOPOLOGY),
    "triphones": model_of(TRIPHONE_TREE, CHAIN_TOPOLOGY),
}
SENTENCES = [[1, 2, 1], [2, 1, 1, 2], [1, 2], [2, 2, 1], [1, 1, 2]]


def strings(fst: Fst, longest: int = 12) -> dict[tuple[int, ...], float]:
    """The probability of each sequence of labels: the sum over paths (costs are -log)."""
    found: dict[tuple[int, ...], float] = defaultdict(float)
    lists, finals = fst.arc_lists(), fst.finals.tolist()
    here = {(fst.start, ()): 1.0}
    for _ in range(longest + 1):
        after: dict[tuple[int, tuple[int, ...]], float] = defaultdict(float)
        for (state, read), prob in here.items():
            if finals[state] != NOT_FINAL:
                found[read] += prob * math.exp(-finals[state])
            for label, _, weight, target in lists[state]:
                after[target, (*read, label)] += prob * math.exp(-weight)
        here = after
    return found


# -- what an HMM emits, by its definition


def emissions(model: str, phones: tuple[int, ...], frames: int) -> dict[tuple[int, ...], float]:
    """Sequences of pdfs plus one of a sequence of phones over some frames, with probabilities."""
    tree, transitions = MODELS[model]
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for lengths in itertools.product(range(1, frames + 1), repeat=len(phones)):
        if sum(lengths) != frames:
            continue
        parts = []
        for place, length in enumerate(lengths):
            around = (0, *phones, 0)[place : place + 3]
            window = around[1 - tree.central :][: tree.width]
            parts.append(_of_phone(model, [tree.pdf_of(window, c) + 1 for c in (0, 1)], length))
        for choice in itertools.product(*parts):
            labels = sum((labels for labels, _ in choice), ())
            found[labels] += math.prod(prob for _, prob in choice)
    assert transitions.num_pdfs
    return found


def _of_phone(model: str, pdfs: list[int], length: int) -> list[tuple[tuple[int, ...], float]]:
    if model != "states":
        return [((pdfs[0], *[pdfs[1]] * (length - 1)), 0.5**length)]
    return [  # the frames of the two states
        (
            (pdfs[0],) * first + (pdfs[1],) * (length - first),
            0.3 ** (first - 1) * 0.7 * 0.4 ** (length - first - 1) * 0.6,
        )
        for first in range(1, length)
    ]


# -- the language model


def lm_of(num_extra: int = 1000, order: int = 3) -> Fst:
    options = LanguageModelOptions(order, num_extra, 2)
    sentences = [(f"s{i}", np.array(phones, np.int32)) for i, phones in enumerate(SENTENCES)]
    return estimate_phone_lm(sentences, options)


def test_unpruned_language_model_has_the_relative_frequencies_of_ngrams():
    counts: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for phones in SENTENCES:
        history: tuple[int, ...] = (0,)
        for phone in [*phones, 0]:
            counts[history][phone] += 1
            history = (*history, phone)[-2:]
    found = strings(lm_of())
    for phones in SENTENCES:
        prob, history = 1.0, (0,)
        for phone in [*phones, 0]:
            prob *= counts[history][phone] / sum(counts[history].values())
            history = (*history, phone)[-2:]
        assert found[tuple(phones)] == pytest.approx(prob, rel=1e-5)


def log_like(lm: Fst, sentences: list[list[int]]) -> float:
    """The logarithm of the probability that a deterministic acceptor gives to sentences."""
    return -sum(strings_min(lm, {tuple(phones)})[tuple(phones)] for phones in sentences)


def test_the_log_tells_the_perplexity_on_the_training_data(capsys):
    lm = lm_of()
    num_phones = sum(len(phones) + 1 for phones in SENTENCES)  # with the ends of sentences
    perplexity = math.exp(-log_like(lm, SENTENCES) / num_phones)
    assert f"Perplexity on training data is: {perplexity:.5}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "careless"),
    [("_SAME", 1e9), ("_NO_LOSS_PER_COUNT", 1.0)],
    ids=["losses are those of the time of dropping", "an empty backoff state costs nothing"],
)
def test_pruning_drops_the_states_whose_loss_is_least(monkeypatch, name, careless):
    rng = np.random.default_rng(1)
    sentences = [rng.integers(1, 4, rng.integers(3, 9)).tolist() for _ in range(40)]
    named = [(f"s{i}", np.array(phones, np.int32)) for i, phones in enumerate(sentences)]
    found = []
    for value in (getattr(phone_lm, name), careless):
        monkeypatch.setattr(phone_lm, name, value)
        found.append(log_like(estimate_phone_lm(named, LanguageModelOptions(4, 8, 2)), sentences))
    assert found[0] > found[1] + 1


def test_pruned_language_model_is_smaller_and_still_accepts_all():
    whole, small = lm_of(), lm_of(num_extra=0)
    assert small.num_states < whole.num_states
    found = strings(small)
    assert all(found[tuple(phones)] > 0 for phones in SENTENCES)
    totals = np.exp(-small.finals.astype(float))
    totals += np.bincount(small.sources, np.exp(-small.weights.astype(float)), small.num_states)
    np.testing.assert_allclose(totals, 1.0, rtol=1e-5)


def test_phones_must_be_positive():
    with pytest.raises(DataError, match=r"'s1'.*phone 0"):
        estimate_phone_lm(
            [("s0", np.array([1, 2])), ("s1", np.array([1, 0]))], LanguageModelOptions()
        )


# -- the denominator graph


@pytest.mark.parametrize("model", MODELS)
def test_denominator_gives_sequences_the_probability_of_their_phones_and_times(model):
    lm = lm_of()
    den_fst = make_denominator_fst(*MODELS[model], lm)
    expected: dict[tuple[int, ...], float] = defaultdict(float)
    frames = 4
    for phones, prob in strings(lm, frames).items():
        for labels, times in emissions(model, phones, frames).items():
            expected[labels] += prob * times
    found = {labels: p for labels, p in strings(den_fst, frames).items() if len(labels) == frames}
    assert found.keys() == {labels for labels, p in expected.items() if p > 0}
    for labels, prob in found.items():  # weights are rounded to about 0.01 some times
        assert math.log(prob) == pytest.approx(math.log(expected[labels]), abs=0.1)


def test_the_log_tells_the_sizes_of_all_steps(capsys):
    lm = lm_of()
    make_denominator_fst(*MODELS["monophones"], lm)
    log = capsys.readouterr().err
    assert f"arcs in phone-LM FST is {lm.num_states} and {lm.num_arcs}\n" in log
    assert re.findall(r"regular minimization is \d+ and \d+ \(pass (\d)\)\n", log) == list("123")


def test_normalization_begins_and_ends_anywhere():
    tree, model = MODELS["monophones"]
    den_fst = make_denominator_fst(tree, model, lm_of())
    graph = DenominatorGraph.from_fst(den_fst, model.num_pdfs)
    assert graph.initial_probs.sum() == pytest.approx(1.0, abs=1e-5)
    normalization = make_normalization_fst(den_fst)
    assert (normalization.ilabels > 0).all()
    best: dict[int, float] = defaultdict(lambda: np.inf)
    for state in range(den_fst.num_states):
        for label, _, weight, _ in den_fst.arc_lists()[state]:
            best[label] = min(best[label], weight - math.log(graph.initial_probs[state]))
    arcs = normalization.arc_lists()[normalization.start]
    for label, cost in best.items():
        assert min(w for i, _, w, _ in arcs if i == label) == pytest.approx(cost, abs=1e-5)


def test_a_tree_of_another_model_is_refused():
    lm = lm_of()
    with pytest.raises(DataError, match="do not belong together"):
        make_denominator_fst(MODELS["biphones"][0], MODELS["monophones"][1], lm)
    unknown = Fst.linear([1, 2, 7])
    with pytest.raises(DataError, match="label 7"):
        make_denominator_fst(*MODELS["monophones"], unknown)


# -- supervisions


def options(**values: float) -> SupervisionOptions:
    return SupervisionOptions(**{"left_tolerance": 1, "right_tolerance": 1, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS)
def test_supervision_has_exactly_the_sequences_within_the_tolerances(model):
    pairs = np.array([[1, 3], [2, 2], [2, 2]], np.int32)
    supervision = SupervisionCompiler(*MODELS[model]).compile(of_alignment(pairs, options()))
    assert supervision is not None
    allowed = [set() for _ in range(7)]
    for phone, begin, end in ((1, 0, 4), (2, 2, 6), (2, 4, 7)):
        for frame in range(begin, end):
            allowed[frame].add(phone)
    transitions = MODELS[model][1]
    phone_of = dict(zip(transitions.tuples[:, 2] + 1, transitions.tuples[:, 0], strict=True))
    phone_of |= dict(zip(transitions.tuples[:, 3] + 1, transitions.tuples[:, 0], strict=True))
    expected = {
        labels
        for labels in emissions(model, (1, 2, 2), 7)
        if all(phone_of[label] in ok for label, ok in zip(labels, allowed, strict=True))
    }
    assert expected
    assert strings(supervision.fst).keys() == expected
    assert supervision.state_times()[-1] == 7
    assert supervision.weight == 1.0


MIXED_TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>
</TopologyEntry> <TopologyEntry> <ForPhones> 2 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 1 1.0 </State> <State> 1 </State>
</TopologyEntry> </Topology>
"""
"""One pdf for all frames of phone 1; phone 2 takes one frame."""


@pytest.mark.parametrize("model", ["monophones", "biphones", "triphones", "mixed"])
@pytest.mark.parametrize("pdfs", [False, True])
def test_a_sequence_of_phones_and_its_graph_give_the_same_bytes(model, pdfs):
    rng = np.random.default_rng(3)
    parts = (MODELS | {"mixed": model_of(MONO_TREE, MIXED_TOPOLOGY)})[model]
    by_sequence, by_graph = (SupervisionCompiler(*parts, pdfs) for _ in range(2))
    by_sequence._graphs.expand = None  # type: ignore[method-assign, assignment]
    num_empty = 0
    for _ in range(60):
        size = rng.integers(1, 12)
        pairs = rng.integers(1, [3, 6], (size, 2)).astype(np.int32)
        sizes = rng.integers([0, 0, 1], [4, 4, 4]).tolist()
        names = "left_tolerance", "right_tolerance", "frame_subsampling_factor"
        proto = of_alignment(pairs, options(**dict(zip(names, sizes, strict=True))))
        found = by_sequence.compile(proto)
        expected = by_graph.compile(replace(proto, sequence=[]))
        num_empty += found is None
        assert encoded(found) == encoded(expected)
    assert 0 < num_empty < 60


def encoded(supervision: Supervision | None) -> bytes:
    file = io.BytesIO()
    if supervision is not None:
        supervision.write(Writer(file, binary=True))
    return file.getvalue()


def test_too_many_phones_for_the_frames_is_no_supervision():
    pairs = np.array([[1, 1], [2, 1], [1, 1]], np.int32)
    compiler = SupervisionCompiler(*MODELS["monophones"])
    assert compiler.compile(of_alignment(pairs, options(frame_subsampling_factor=3))) is None


LATTICE = Fst.from_lists(
    0, [NOT_FINAL, NOT_FINAL, 0.5], [[(1, 1, 1.0, 1), (2, 2, 3.0, 1)], [(2, 2, 2.0, 2)], []]
)


def test_lattices_allow_alternatives_with_their_costs():
    lattice = PhoneLattice(LATTICE, np.array([2, 2, 1]), np.zeros(3, np.int64))
    proto = of_lattice(lattice, options(left_tolerance=0, right_tolerance=0, lm_scale=0.5))
    assert proto.allowed_phones == [{1, 2}, {1, 2}, {2}]
    supervision = SupervisionCompiler(*MODELS["monophones"]).compile(proto)
    assert supervision is not None
    found = strings(supervision.fst)
    # The frames tell only which phones may be there, not which way through the lattice.
    assert found.keys() == {(1, 2, 3), (1, 3, 4), (3, 4, 3), (3, 3, 4)}
    # Half of the difference of 2, the common part being taken out.
    assert found[1, 2, 3] == pytest.approx(1.0)
    assert found[3, 4, 3] == pytest.approx(math.exp(-1.0))


def test_lattices_out_of_step_are_refused():
    lattice = PhoneLattice(LATTICE, np.array([2, 3, 1]), np.zeros(3, np.int64))
    with pytest.raises(DataError, match="differ in length"):
        of_lattice(lattice, options())
    ends = Fst.from_lists(0, [NOT_FINAL, 0.0, 0.0], [[(1, 1, 0.0, 1), (2, 2, 0.0, 2)], [], []])
    lattice = PhoneLattice(ends, np.array([3, 3]), np.array([0, 0, 1]))  # a frame behind one state
    with pytest.raises(DataError, match="final state before its end"):
        of_lattice(lattice, options())


# -- chunks


def compiled(seed: int):
    rng = np.random.default_rng(seed)
    phones = rng.integers(1, 3, 4)
    pairs = np.stack([phones, rng.integers(1, 4, 4)], axis=1).astype(np.int32)
    supervision = SupervisionCompiler(*MODELS["biphones"]).compile(of_alignment(pairs, options()))
    assert supervision is not None
    return supervision


@pytest.mark.parametrize("seed", range(8))
def test_a_piece_has_the_middles_of_all_sequences(seed):
    supervision = compiled(seed)
    size = supervision.frames_per_sequence
    for begin, end in ((0, 2), (1, size), (size - 3, size - 1), (0, size)):
        piece = SupervisionCutter(supervision).cut(begin, end - begin)
        middles = {labels[begin:end] for labels in strings(supervision.fst)}
        assert strings(remove_epsilons(piece.fst)).keys() == middles


@pytest.mark.parametrize("seed", range(8))
def test_normalized_supervision_has_the_normalization_costs(seed):
    supervision = compiled(seed)
    tree, model = MODELS["biphones"]
    normalization = make_normalization_fst(make_denominator_fst(tree, model, lm_of()))
    normalized = Normalizer(normalization, 0.5).normalized(supervision)
    scaled = normalization.scaled(0.5)
    expected = strings_min(scaled, set(strings(supervision.fst)))
    if normalized is None:
        assert not expected
        return
    found = strings_min(normalized.fst, set(strings(supervision.fst)))
    assert found.keys() == expected.keys()
    for labels, cost in found.items():
        assert cost == pytest.approx(expected[labels], abs=len(labels) / 1000)
    assert normalized.state_times()[-1] == supervision.frames_per_sequence


def strings_min(fst: Fst, wanted: set[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """The least cost of each of these sequences that the acceptor has."""
    lists, finals = fst.arc_lists(), fst.finals.tolist()
    found = {}
    for labels in wanted:
        here = {fst.start: 0.0}
        for label in labels:
            after: dict[int, float] = {}
            for state, cost in here.items():
                for ilabel, _, weight, target in lists[state]:
                    if ilabel == label:
                        after[target] = min(after.get(target, np.inf), cost + weight)
            here = after
        best = min((cost + finals[state] for state, cost in here.items()), default=np.inf)
        if best < np.inf:
            found[labels] = best
    return found


def test_merged_supervisions_follow_one_another():
    parts = [SupervisionCutter(compiled(seed)).cut(0, 3) for seed in range(3)]
    parts = [Normalizer(ANY).normalized(part) for part in parts]
    merged = merge_supervisions(parts)
    assert merged.num_sequences == 3
    sets = [strings(part.fst).keys() for part in parts]
    expected = {sum(choice, ()) for choice in itertools.product(*sets)}
    assert strings(merged.fst).keys() == expected
    assert merged.state_times()[-1] == 9


ANY = Fst.from_lists(0, [0.0], [[(label, label, 0.0, 0) for label in range(1, 7)]])


@pytest.mark.parametrize("seed", range(5))
def test_posteriors_are_those_of_all_paths(seed):
    normalized = Normalizer(
        make_normalization_fst(make_denominator_fst(*MODELS["biphones"], lm_of()))
    ).normalized(compiled(seed))
    if normalized is None:
        return
    probs = strings(normalized.fst)
    expected = np.zeros((normalized.frames_per_sequence, normalized.label_dim))
    for labels, prob in probs.items():
        expected[np.arange(len(labels)), np.array(labels) - 1] += prob / sum(probs.values())
    found = supervision_posteriors(normalized).to_dense()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_posteriors_take_account_of_the_costs_of_ending():
    fst = Fst.from_lists(0, [NOT_FINAL, 0.2, 1.5], [[(1, 1, 0.1, 1), (2, 2, 0.3, 2)], [], []])
    found = supervision_posteriors(Supervision(1.0, 1, 1, 2, fst)).to_dense()
    first = 1 / (1 + math.exp(0.3 - 1.8))
    np.testing.assert_allclose(found, [[first, 1 - first]], atol=1e-6)


def test_unconstrained_supervision_forgets_times():
    pairs = np.array([[1, 2], [2, 2]], np.int32)
    tree, model = MODELS["monophones"]
    compiler = SupervisionCompiler(tree, model, convert_to_pdfs=False)
    supervision = compiler.compile(
        of_alignment(pairs, options(left_tolerance=0, right_tolerance=0))
    )
    converted = UnconstrainedConverter(model).convert(supervision)
    assert converted is not None
    assert converted.label_dim == 4
    assert converted.alignment_pdfs.tolist() == [0, 1, 2, 3]
    found = {labels for labels in strings(converted.e2e_fsts[0], 4) if len(labels) == 4}
    assert found == {(1, 2, 2, 3), (1, 2, 3, 4), (1, 3, 4, 4)}


# -- what damaged files brought to light


def test_a_lattice_without_a_way_to_its_end_is_no_supervision():
    cut = Fst.from_lists(0, [NOT_FINAL, NOT_FINAL, 0.0], [[(1, 1, 0.0, 1)], [], []])
    lattice = PhoneLattice(cut, np.array([3]), np.zeros(3, np.int64))
    with pytest.raises(DataError, match="no path to a final state"):
        of_lattice(lattice, options())
    linear = SupervisionCompiler(*MODELS["monophones"])
    assert linear.compile(ProtoSupervision(cut, [{1}] * 3)) is None


def test_endless_durations_are_refused():
    pairs = np.array([[1, 3], [2, 2_000_000_000]], np.int32)
    with pytest.raises(DataError, match="2000000003 frames"):
        of_alignment(pairs, options())


def test_a_language_model_that_accepts_nothing_is_refused():
    with pytest.raises(DataError, match="accepts nothing"):
        make_denominator_fst(
            *MODELS["monophones"], Fst.from_lists(0, [NOT_FINAL, NOT_FINAL], [[(1, 1, 0.0, 1)], []])
        )
