"""Options of decoding, aligning and determinizing (Kaldi's *Config and *Options).

Only declarations: programs parse options before they load NumPy.
"""

from __future__ import annotations

from nnet3tools.errors import OptionError
from nnet3tools.options import OptionGroup, option

_MOST = 2**31 - 1


class DeterminizeOptions(OptionGroup):
    """Options of determinization (Kaldi's DeterminizeLatticePhonePrunedOptions)."""

    delta: float = option(1.0 / 1024, "Tolerance used in determinization")
    max_mem: int = option(
        50_000_000,
        "Maximum approximate memory usage in determinization (real usage might be many times "
        "this).",
    )
    phone_determinize: bool = option(
        True,
        "If true, do an initial pass of determinization on both phones and words (see also "
        "--word-determinize)",
    )
    word_determinize: bool = option(
        True,
        "If true, do a second pass of determinization on words only (see also --phone-determinize)",
    )
    minimize: bool = option(False, "If true, push and minimize after determinization.")


class SearchOptions(OptionGroup):
    """Options of the Viterbi search: beams and limits of the number of tokens.

    native/library.py declares them to C as the members of a struct `search_options`.
    """

    beam: float = option(16.0, "Decoding beam.  Larger->slower, more accurate.")
    max_active: int = option(_MOST, "Decoder max active states.  Larger->slower; more accurate")
    min_active: int = option(200, "Decoder minimum #active states.")
    lattice_beam: float = option(
        10.0, "Lattice generation beam.  Larger->slower, and deeper lattices"
    )
    prune_interval: int = option(25, "Interval (in frames) at which to prune tokens")
    beam_delta: float = option(
        0.5,
        "Increment used in decoding-- this parameter is obscure and relates to a speedup in the "
        "way the max-active constraint is applied.  Larger is more accurate.",
    )
    hash_ratio: float = option(
        2.0,
        "Kaldi's hash tables of tokens have this many buckets a token: only the order in which "
        "equal ways are found depends on it",
    )

    def check(self) -> None:
        """Raise OptionError for option values that are impossible."""
        for name in ("beam", "lattice_beam", "beam_delta"):
            if not getattr(self, name) > 0.0:
                raise OptionError(f"--{name.replace('_', '-')} must be greater than 0")
        if self.max_active <= 1 or not 0 <= self.min_active <= self.max_active:
            raise OptionError("--max-active must be > 1, and --min-active between 0 and it")
        if self.prune_interval <= 0 or not 1.0 <= self.hash_ratio <= 1000.0:
            raise OptionError("--prune-interval must be > 0, and --hash-ratio from 1 to 1000")


class LatticeDecoderOptions(SearchOptions, DeterminizeOptions):
    """Options of decoding (Kaldi's LatticeFasterDecoderConfig)."""

    determinize_lattice: bool = option(
        True,
        "If true, determinize the lattice (lattice-determinization, keeping only best pdf-sequence "
        "for each word-sequence).",
    )
    memory_pool_tokens_block_size: int = option(
        256, "Accepted as Kaldi's option about its memory: not used here"
    )
    memory_pool_links_block_size: int = option(
        256, "Accepted as Kaldi's option about its memory: not used here"
    )


class AlignOptions(OptionGroup):
    """Options of alignment (Kaldi's AlignConfig)."""

    beam: float = option(200.0, "Decoding beam used in alignment")
    retry_beam: float = option(0.0, "Decoding beam for second try at alignment")
    careful: bool = option(
        False,
        "If true, do 'careful' alignment, which is better at detecting alignment failure (involves "
        "loop to start of decoding graph).",
    )

    def check(self) -> None:
        """Raise OptionError for beams that contradict each other."""
        if self.beam <= 0.0 or (self.retry_beam != 0.0 and self.retry_beam <= self.beam):
            raise OptionError(
                f"Beams do not make sense: beam {self.beam:g}, retry-beam {self.retry_beam:g}"
            )
