"""nnet3-xconfig-to-configs: convert Kaldi's layer language to config files."""

from nnet3tools.cli.options import OptionGroup, option, program, quote
from nnet3tools.errors import OptionError

USAGE = """Read an xconfig file, which describes a network by layers, and write into a directory the
config files that nnet3-init reads: final.config (the network), ref.config (the same
without matrices from files), init.config (what is before an LDA-like transform, if there
is one), and vars (the network's context).

Usage:  nnet3-xconfig-to-configs [options]
e.g.:
 nnet3-xconfig-to-configs --xconfig-file=network.xconfig --config-dir=configs
See also: nnet3-init, docs/xconfig.md
"""


class Options(OptionGroup):
    xconfig_file: str = option("", "File with the layers (required)")
    config_dir: str = option("", "Directory to write to, which is created if necessary (required)")
    existing_model: str = option(
        "", "Model that the layers are added to, and whose nodes they may take as input"
    )
    nnet_edits: str = option(
        "",
        "Edits that give a network an output 'output', so that its context can be computed, "
        "e.g. 'rename-node old-name=output-0 new-name=output'",
    )


@program("nnet3-xconfig-to-configs", USAGE, Options, num_args=0, values_apart=True)
def main(options: Options, args: list[str]) -> None:
    """Convert an xconfig file (Kaldi's layer language) to config files of a network."""
    given = {
        "xconfig-file": options.xconfig_file,
        "config-dir": options.config_dir,
        "existing-model": options.existing_model,
        "nnet-edits": options.nnet_edits,
    }
    for name in ("xconfig-file", "config-dir"):
        if not given[name]:
            raise OptionError(f"option --{name} is required")

    from nnet3tools.io.files import MAX_CONFIG, read_text_lines
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.xconfig.configs import Conversion, write_config_dir

    words = [f"--{name}={value}" for name, value in given.items() if value]
    lines = read_text_lines(options.xconfig_file, MAX_CONFIG)
    text = "".join(f"{line}\n" for line in lines)
    existing = read_nnet(options.existing_model) if options.existing_model else None
    command = " ".join(["nnet3-xconfig-to-configs", *map(quote, words)])
    conversion = Conversion(text, options.xconfig_file, command, existing, options.nnet_edits)
    write_config_dir(conversion, options.config_dir)
