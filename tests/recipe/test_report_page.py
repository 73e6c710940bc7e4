"""nnet3-report: the page shows the facts of the log files, and nothing from them can harm it."""

import html.parser
import json
import random
import re
import time
from pathlib import Path

import pytest

from nnet3tools.errors import DataError
from nnet3tools.recipe.programs import nnet3_report
from nnet3tools.recipe.record import check_recorded
from nnet3tools.recipe.report import log_file, report_page, write_report
from nnet3tools.recipe.report.charts import Line, line_chart
from nnet3tools.recipe.report.history import read_history
from nnet3tools.recipe.report.network import PERCENTS, read_network, share_below
from nnet3tools.recipe.report.network_picture import network_picture

FRAME = """# {command}
# Started at Sun Nov 22 05:0{minute}:00 UTC 2026
#
{text}
# Accounting: time={seconds} threads=1
# Ended (code {code}) at Sun Nov 22 05:09:00 UTC 2026, elapsed time {seconds} seconds
"""
PROB = """LOG (nnet3-compute-prob[5.5]:PrintTotalStats():nnet-diagnostics.cc:180) Overall \
log-likelihood for 'output' is {objective} per frame, over 8561 frames.
LOG (nnet3-compute-prob[5.5]:PrintTotalStats():nnet-diagnostics.cc:190) Overall \
accuracy for 'output' is {accuracy} per frame, over 8561 frames."""
TRAIN = """LOG (nnet3-train[5.5]:PrintTotalStats():nnet-training.cc:72) Overall \
average objective function for 'output' is {objective} over 1000 frames.
LOG (nnet3-train[5.5]:Print():nnet-utils.cc:1) For tdnn1.affine, per-component max-change \
was enforced {percent} % of the time.
LOG (nnet3-train[5.5]:Print():nnet-utils.cc:2) The global max-change was \
enforced 10 % of the time."""
DERIVATIVES = "0,0,0,0 0,0.1,0.30,0.99,1.0 1.0,1.0,1.0,1.0"
INFO = f"""left-context: 2
right-context: 2
num-parameters: 1234
input-node name=input dim=20
component-node name=tdnn1.affine component=tdnn1.affine input=Append(Offset(input, -2), input, \
Offset(input, 2)) input-dim=60 output-dim=128
component-node name=tdnn1.relu component=tdnn1.relu input=tdnn1.affine input-dim=128 output-dim=128
component-node name=output.affine component=output.affine input=Sum(tdnn1.relu, \
Offset(output.affine, -3)) input-dim=128 output-dim=30
output-node name=output input=output.affine dim=30 objective=linear
component name=tdnn1.affine type=NaturalGradientAffineComponent, input-dim=60, output-dim=128, \
learning-rate=0.0019, max-change=0.75, linear-params-rms=0.1, bias-{{mean,stddev}}=-0.1,0.9
component name=tdnn1.relu type=RectifiedLinearComponent, dim=128, self-repaired-proportion=0.5, \
value-avg=[percentiles(0,1,2,5 10,20,50,80,90 95,98,99,100)=({DERIVATIVES}), mean=0.4, \
stddev=0.5], deriv-avg=[percentiles(0,1,2,5 10,20,50,80,90 95,98,99,100)=({DERIVATIVES}), \
mean=0.4, stddev=0.4]
component name=output.affine type=AffineComponent, input-dim=128, output-dim=30
LOG (nnet3-show-progress[5.5]:main():nnet3-show-progress.cc:118) Parameter differences per \
layer are [ tdnn1.affine:1.28674 output.affine:0.8 ]
LOG (nnet3-show-progress[5.5]:main():nnet3-show-progress.cc:119) Norms of parameter matrices from \
<new-nnet-in> are [ tdnn1.affine:16.9 output.affine:8.2 ]
LOG (nnet3-show-progress[5.5]:main():nnet3-show-progress.cc:124) Relative parameter differences \
per layer are [ tdnn1.affine:0.0765 output.affine:0.1046 ]"""


def write_log(folder: Path, name: str, text: str, seconds: int = 9, **frame: object) -> None:
    (folder / "log").mkdir(exist_ok=True)
    values = {"command": "nnet3-x", "minute": 1, "code": 0, **frame}
    whole = FRAME.format(text=text, seconds=seconds, **values)
    (folder / "log" / f"{name}.log").write_text(whole)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Two iterations of two jobs, and a final model."""
    folder = tmp_path / "tdnn"
    folder.mkdir()
    for i, mark in enumerate(["0", "1", "final"]):
        for k, part in enumerate(["train", "valid"]):
            text = PROB.format(objective=-3 + i - k / 4, accuracy=0.1 + 0.3 * i)
            write_log(folder, f"compute_prob_{part}.{mark}", text, minute=i)
    for i in range(2):
        for job in (1, 2):
            command = f'nnet3-train "nnet3-copy --learning-rate={0.004 / (i + 1)} {i}.raw - |"'
            text = TRAIN.format(objective=-2 + i + job, percent=20 * job)
            write_log(folder, f"train.{i}.{job}", text, 5 * job, command=command, minute=2 + i)
    write_log(folder, "progress.1", INFO, minute=4)
    write_log(folder, "combine", "", 30, code=1, minute=5)
    return folder


def test_curves_are_what_the_logs_say(trained: Path) -> None:
    history = read_history(trained)
    assert history.num_iterations == 2
    assert history.diagnostics("train", "objectives") == {"output": [(0, -3), (1, -2), (2, -1)]}
    assert history.diagnostics("valid", "objectives")["output"][-1] == (2, -1.25)
    accuracies = history.diagnostics("valid", "accuracies")["output"]
    assert accuracies == [(0, 0.1), (1, 0.4), (2, 0.7)]
    assert history.training_objectives() == {"output": [(0.5, -0.5), (1.5, 0.5)]}
    given, effective = history.learning_rates()
    assert given == [(0, 0.004), (1, 0.002)]
    assert effective == [(0, 0.002), (1, 0.001)]
    assert history.frame_rates() == [(0, 2000 / 10), (1, 2000 / 10)]
    limited, whole = history.max_changes()
    assert limited == {"tdnn1.affine": [(0, 30), (1, 30)]}
    assert whole == [(0, 10), (1, 10)]
    assert history.changes("Relative parameter differences")["output.affine"] == [(1, 0.1046)]
    assert history.span() is not None
    first, last = history.span() or (0, 0)
    assert last - first == 5 * 60 + 30


def test_stages_have_their_time_and_their_failures(trained: Path) -> None:
    by_name = {stage.stage: stage for stage in read_history(trained).stages()}
    assert (by_name["train"].num_jobs, by_name["train"].seconds) == (4, 30)
    assert by_name["combine"].num_failed == 1
    assert "<b>1 failed</b>" in report_page(trained)


def test_an_objective_of_terms_is_their_sum_and_each_output_has_its_own(tmp_path: Path) -> None:
    text = (
        "LOG (nnet3-chain-compute-prob:PrintTotalStats():nnet-chain-diagnostics.cc:149) Overall "
        "log-probability for 'output' is -0.399395 + -0.013437 = -0.412832 per frame, over 20000 "
        "frames.\n"
        "LOG (nnet3-chain-compute-prob:PrintTotalStats():nnet-chain-diagnostics.cc:144) Overall "
        "log-probability for 'output-xent' is -0.307255 per frame, over 20000 frames.\n"
    )
    write_log(tmp_path, "compute_prob_valid.7", text)
    history = read_history(tmp_path)
    curves = history.diagnostics("valid", "objectives")
    assert curves == {"output": [(7, -0.412832)], "output-xent": [(7, -0.307255)]}
    # What steps/libs/nnet3/report/log_parse.py takes for accuracy.report.
    plain = history.diagnostics("valid", "plain_objectives")
    assert plain == {"output": [(7, -0.399395)], "output-xent": [(7, -0.307255)]}


class _Checker(html.parser.HTMLParser):
    """Checks that each element is closed where it was opened."""

    EMPTY = frozenset(("meta",))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_html(page: str) -> set[str]:
    checker = _Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker.seen


def test_page_needs_nothing_else(trained: Path) -> None:
    write_report(trained)
    page = (trained / "report.html").read_text()
    for outside in ("http:", "https:", "src=", "<link", "@import", "url(h"):
        assert outside not in page
    assert "script" not in check_html(page)
    for shown in ("tdnn1.affine", "0.0765", "1234", "--learning-rate=0.002", "-2, 0, +2", "16.9"):
        assert shown in page
    assert "tdnn1.relu: 15 % off, 50 % self-repaired" in page


def test_a_name_cannot_leave_its_place_on_the_page(trained: Path) -> None:
    evil = "<!--<script>&quot;'\">"
    for log in (trained / "log").iterdir():
        text = log.read_text()
        log.write_text(text.replace("tdnn1.affine", evil).replace("'output'", f"'{evil[:9]}'"))
    page = report_page(trained)
    assert "<!--" not in page
    assert "<script" not in page
    assert "&lt;!--&lt;script&gt;&amp;quot;&#x27;&quot;&gt;" in page
    assert "script" not in check_html(page)


def test_control_characters_are_never_on_the_page(trained: Path) -> None:
    for log in (trained / "log").iterdir():
        text = log.read_text()
        log.write_bytes(text.replace("affine", "a\0\x1b[31m\x07\x85\xff").encode("latin-1"))
    page = report_page(trained)
    assert set(re.findall(r"[\x00-\x1f\x7f-\x9f]", page)) == {"\n"}
    check_html(page)


def test_logs_cut_off_or_garbled_anywhere_do_no_harm(trained: Path) -> None:
    draws = random.Random(0)
    logs = sorted((trained / "log").iterdir())
    whole = {log: log.read_bytes() for log in logs}
    for _ in range(60):
        for log, data in whole.items():
            cut = bytearray(data[: draws.randrange(len(data) + 1)])
            for _ in range(draws.randrange(4)):
                if cut:
                    cut[draws.randrange(len(cut))] = draws.randrange(256)
            log.write_bytes(cut)
        check_html(report_page(trained))


@pytest.mark.parametrize(
    "value", ["1e308", "-1e308", "1e-320", "nan", "inf", "1e30", "0", "5" * 400]
)
def test_numbers_that_no_chart_can_hold_do_no_harm(trained: Path, value: str) -> None:
    for log in (trained / "log").iterdir():
        log.write_text(
            re.sub(r"(is|affine:|rate=|time=)( ?)-?[\d.]+", rf"\g<1>\g<2>{value}", log.read_text())
        )
    page = report_page(trained)
    check_html(page)
    assert not re.search(r'(d|[xy]|c[xy]|width)="[^"]*(nan|inf)', page)


def test_values_nearly_equal_make_a_chart() -> None:
    for values in ([0.1, 0.1 + 1e-17], [-1e-30, 1e-30], [1e30, -1e30], [3.0], [1e6, 1e6 + 1e-9]):
        check_html(line_chart("t", [Line("x", list(enumerate(values)))]))


def test_a_directory_without_logs_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match="no training directory"):
        report_page(tmp_path)
    assert nnet3_report.main([str(tmp_path / "none")]) != 0
    assert "no log files in" in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_before_any_training_the_config_gives_the_picture(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "final.config").write_text(
        "input-node name=input dim=4\n"
        "component name=tdnn1.affine type=NaturalGradientAffineComponent input-dim=8 output-dim=3\n"
        "component-node name=tdnn1.affine component=tdnn1.affine "
        "input=Append(input, Offset(input, 1))\n"
        "component-node name=broken component=x input=Append(\n"
        "output-node name=output input=tdnn1.affine\n"
    )
    write_log(tmp_path, "nnet_init", "")
    page = report_page(tmp_path)
    assert ">tdnn1.affine</text>" in page
    assert "broken" not in page
    assert "0, +1" in page


def test_a_loop_goes_back_and_chains_share_a_box() -> None:
    picture = network_picture(read_network(INFO.split("\n")))
    assert picture.count("<rect") == 4
    assert picture.count('class="arrow back"') == 1
    assert ">affine, ReLU</text>" in picture
    assert picture.count('class="arrow"') == 3


def test_share_below_goes_straight_between_percentiles() -> None:
    values = tuple(p / 100 for p in PERCENTS)
    for limit in (0.005, 0.05, 0.15, 0.77, 1.0):
        assert share_below(values, limit) == pytest.approx(limit)
    assert share_below((0.0, 0.2, 0.4), 0.3) == pytest.approx(2 / 3)


def test_a_log_is_read_again_when_it_has_grown(trained: Path) -> None:
    log = trained / "log" / "compute_prob_valid.1.log"
    before = read_history(trained).diagnostics("valid", "accuracies")["output"][1]
    log.write_text(log.read_text().replace("0.4 per frame", "0.4444 per frame"))
    assert before == (1, 0.4)
    assert read_history(trained).diagnostics("valid", "accuracies")["output"][1] == (1, 0.4444)


def test_logs_of_a_grid_have_their_command_time_and_status(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "train.3.2.log").write_text(
        "# Running on c07\n# Started at Sun Nov 22 05:02:29 UTC 2026\n"
        '# nnet3-train "nnet3-copy --learning-rate=0.01 3.raw - |" ark:egs 4.2.raw \n'
        "ERROR (nnet3-train[5.5]:main():nnet3-train.cc:1) no\n"
        "# Accounting: time=17 threads=1\n"
        "# Finished at Sun Nov 22 05:02:46 UTC 2026 with status 255\n"
    )
    (log,) = read_history(tmp_path).logs
    assert log.command.startswith("nnet3-train ")
    assert (log.stage, log.iteration, log.seconds, log.failed) == ("train", 3, 17, True)
    assert log.learning_rate == 0.01


def test_the_training_program_s_options_are_shown_once(trained: Path) -> None:
    record = trained / "experiment.json"
    options = {"trainer.num-epochs": 3.0, "egs.opts": "--nj 2 <b>", "feat-dir": "", "cmd": None}
    record.write_text(json.dumps({"program": "nnet3-train-raw-dnn", "options": options}))
    quoted = "&#x27;--egs.opts=--nj 2 &lt;b&gt;&#x27;"
    shown = f"<pre>nnet3-train-raw-dnn --trainer.num-epochs=3.0 {quoted}</pre>"
    assert shown in report_page(trained)
    for garbled in ("", "[]", '{"options": 3}', '{"program": 1, "options": [1]}', "[" * 100000):
        record.write_text(garbled)
        assert "nnet3-train-raw-dnn" not in report_page(trained)


def test_short_iterations_have_a_rate_only_if_their_time_is_exact(tmp_path: Path) -> None:
    text = TRAIN.format(objective=-1, percent=0)
    write_log(tmp_path, "train.0.1", text, 1)
    write_log(tmp_path, "train.1.1", text, 0)
    path = tmp_path / "log" / "train.1.1.log"
    exact = "threads=1 cpu=0.20 seconds=0.250"
    path.write_text(path.read_text().replace("threads=1", exact))
    history = read_history(tmp_path)
    assert history.frame_rates() == [(1, 4000.0)]
    assert {stage.stage: stage.seconds for stage in history.stages()} == {"train": 1.25}


def test_the_schedule_of_dropout_is_a_curve(tmp_path: Path) -> None:
    for i, proportion in enumerate((0.0, 0.15)):
        edits = f"set-dropout-proportion name=* proportion={proportion}"
        command = f"nnet3-train \"nnet3-copy --edits='{edits}' {i}.raw - |\""
        write_log(tmp_path, f"train.{i}.1", "", command=command)
    assert read_history(tmp_path).dropout() == {"*": [(0, 0.0), (1, 0.15)]}
    assert "Dropout proportion" in report_page(tmp_path)


def test_points_off_the_scale_are_named_and_the_axis_has_a_name() -> None:
    points = [(0.0, -9.0), (1.0, -3.0), (2.0, -2.0), (3.0, -1.0)]
    chart = line_chart("title", [Line("valid", points)], x_end=3.0, settled=2.0)
    assert "2 points are off the scale: -9 to -3" in chart
    assert ">iteration</text>" in chart
    assert "off the scale" not in line_chart("title", [Line("valid", points)], x_end=3.0)
    assert ">20000</text>" in line_chart("rate", [Line("r", [(0, 0.0), (1, 41000.0)])])


@pytest.mark.parametrize(
    ("line", "offsets"),
    [
        ("type=TdnnComponent, input-dim=8, time-offsets=-1,0, rank-in=20", (-1, 0)),
        ("type=TdnnComponent time-offsets=-3,0,3 input-dim=8", (-3, 0, 3)),
        ("type=TimeHeightConvolutionComponent height-offsets=-1,0 time-offsets=-1,0,1", (-1, 0, 1)),
        ("type=TimeHeightConvolutionComponent, {time,height}-offsets=[-1,-1 0,0 2,1]", (-1, 0, 2)),
        ("type=TdnnComponent time-offsets=0 input-dim=8", ()),
        ("type=AffineComponent input-dim=8", ()),
    ],
)
def test_time_offsets_inside_components_are_in_the_picture(
    line: str, offsets: tuple[int, ...]
) -> None:
    facts = read_network(
        [
            "input-node name=input dim=8",
            f"component name=c {line}",
            "component-node name=c component=c input=input",
        ]
    )
    assert facts.components["c"].time_offsets == offsets
    assert (">frames " in network_picture(facts)) == bool(offsets)


def test_the_title_says_which_directory_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "digits" / "exp" / "tdnn"
    folder.mkdir(parents=True)
    write_log(folder, "train.0.1", "")
    assert "<h1>digits/exp/tdnn</h1>" in report_page(folder)


HOSTILE = {
    "gates": "component name=a type=LstmNonlinearityComponent" + ", x={ " * 40_000,
    "summaries": "component name=a type=TanhComponent" + " deriv-avg=[" * 20_000,
    "percentiles": "component name=a type=TanhComponent deriv-avg=["
    + "percentiles(" * 20_000
    + "]",
    "differences": "Parameter differences are [ " * 8_000,
    "outputs": "Overall average objective function for '" * 6_000,
    "command": "# x " + "set-dropout-proportion name=" * 8_000,
    "offsets": "component name=a type=TdnnComponent" + " offsets=1,1; " * 15_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_time_is_linear_in_the_length_of_a_line(kind: str, tmp_path: Path) -> None:
    """Of 220 KB, a line once took 24 s."""
    (tmp_path / "log").mkdir()
    for name in ("progress.1", "train.1.1"):
        (tmp_path / "log" / f"{name}.log").write_text(HOSTILE[kind] + "\n")
    began = time.process_time()
    report_page(tmp_path)
    assert time.process_time() - began < 3


@pytest.mark.parametrize("seed", range(5))
def test_lines_without_facts_are_the_only_ones_left_out(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    pieces = [*PROB.split("\n"), *TRAIN.split("\n"), *INFO.split("\n"), "# x", "", " # y", "LOG z"]
    text = "\n".join(generator.choices(pieces, k=200))
    whole = log_file.LogFile("train", ("1",))
    for line in text.split("\n"):
        if not line.startswith(log_file._INFO):
            log_file._take_line(whole, line)
    info = [line for line in text.split("\n") if line.startswith(log_file._INFO)]
    whole.network = read_network(info)
    (tmp_path / "train.1.log").write_text(text)
    assert log_file.read_log(str(tmp_path / "train.1.log")) == whole


def test_two_thousand_outputs_have_their_curves_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for part in ("train", "valid"):
        for i in range(3):
            lines = (
                f"Overall log-likelihood for 'output-{n}' is -{i + 1}.5 per frame, over 9 frames."
                for n in range(2000)
            )
            path = tmp_path / "log" / f"compute_prob_{part}.{i}.log"
            path.write_text("\n".join(lines) + "\n")
    began = time.process_time()
    page = report_page(tmp_path)
    assert time.process_time() - began < 10
    assert "train -3.5, valid -3.5" in page


@pytest.mark.parametrize("text", ["[" * 100_000, '{"options": {}}', "[]", "{", "3"])
def test_a_record_that_is_none_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text(text)
    with pytest.raises(DataError, match="expected the record of an experiment"):
        check_recorded(tmp_path / "experiment.json", {"program": "p", "options": {}, "network": ""})
