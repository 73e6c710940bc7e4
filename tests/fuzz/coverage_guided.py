#!/usr/bin/env python3
"""Inputs that coverage guides (atheris, libFuzzer), given to readers; `pip install atheris` first.

    tests/fuzz/coverage_guided.py FOLDER 100000 'model in binary' tree

gives each of these readers (support/fuzz_readers.py) 100,000 inputs. FOLDER keeps the inputs that
reached new code for the next run, and one failing input of each fault in FOLDER/failures.
"""

import contextlib
import gc
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(tests), str(tests.parent / "src")]
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    folder, runs, *names = sys.argv[1:]
    keep = Path(folder).absolute()

    import atheris

    with atheris.instrument_imports(include=["nnet3tools"]):
        from nnet3tools.errors import UserError
        from nnet3tools.io import handover
        from support.fuzz_corpus import in_corpus
        from support.fuzz_readers import BAD, READERS, FuzzReader
        from support.fuzz_trial import attempt, guarded, judged

        def give(reader: FuzzReader, data: bytes) -> bool:
            """Whether a reader refuses an input well, or takes it; the input is in memory."""
            handover.offer(BAD, handover.Handed(data))
            try:
                reader.read(BAD)
            except UserError as error:
                return judged(reader, error) is None
            except Exception:
                return False
            return True

        def fuzz(reader: FuzzReader, seeds: Path, failures: Path) -> None:
            """Give a reader inputs; the process ends after the last."""
            Path(BAD).unlink(missing_ok=True)
            samples = [Path(sample).read_bytes() for sample in reader.samples]
            handover.offer(BAD, handover.Handed(samples[0]))
            in_memory = False
            with contextlib.suppress(UserError, OSError):
                reader.read(BAD)
                in_memory = True  # it reads by `open_input`
            found: set[str] = set()

            def one_input(data: bytes) -> None:
                if in_memory and give(reader, data):
                    return
                handover.clear()
                failure = attempt(reader, data)
                if failure is not None and failure.signature not in found:
                    found.add(failure.signature)
                    name = f"{zlib.crc32(failure.signature.encode()):08x}"
                    (failures / name).write_bytes(data)
                    (failures / f"{name}.txt").write_text(f"{failure.signature}\n{failure.detail}")

            for sample in reader.samples:
                shutil.copy(sample, seeds)
            options = [f"-atheris_runs={runs}", f"-max_len={64 + max(map(len, samples))}"]
            options += ["-rss_limit_mb=4000", "-timeout=60", f"-artifact_prefix={failures}/"]
            gc.freeze()
            atheris.Setup([sys.argv[0], *options, str(seeds)], one_input)
            sys.stderr = open(os.devnull, "w")
            atheris.Fuzz()

        with in_corpus(Path(tempfile.mkdtemp())), guarded():
            for name in names:
                folders = [keep / kind / name.replace(" ", "_") for kind in ("inputs", "failures")]
                for made in folders:
                    made.mkdir(parents=True, exist_ok=True)
                for sample in READERS[name].samples:
                    attempt(READERS[name], Path(sample).read_bytes())  # imports the rest
                if (child := os.fork()) == 0:
                    fuzz(READERS[name], *folders)
                os.waitpid(child, 0)
