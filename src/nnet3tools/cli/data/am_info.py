"""am-info: sizes of an acoustic model's transition model."""

from nnet3tools.cli.options import NoOptions, program

USAGE = """Write to standard output various properties of a model, of any type
(reads only the transition model)
Usage:  am-info [options] <model-in>
e.g.:
 am-info 1.mdl
"""


@program("am-info", USAGE, NoOptions, num_args=1)
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.load(args[0])
    print(f"number of phones {len(model.topology.phones)}")
    print(f"number of pdfs {model.num_pdfs}")
    print(f"number of transition-ids {model.num_transition_ids}")
    print(f"number of transition-states {len(model.tuples)}")
