"""Computes utterances with onnxruntime: `onnx_run.py MODEL.onnx UTTERANCES.npy OUTPUTS.npy`.

UTTERANCES has the frames of each utterance (N, T, D). Prints user and elapsed seconds of the runs,
without the start and a first run, and the peak of memory in MB. benchmarks/run calls it, with a
Python that has onnxruntime.
"""

import resource
import sys
import time

import numpy as np
import onnxruntime


def main() -> None:
    """Compute on one thread, and print the times."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=providers)
    utterances = np.load(sys.argv[2])
    session.run(None, {"input": utterances[0]})
    clock, began = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    outputs = [session.run(None, {"input": utterance})[0] for utterance in utterances]
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
    elapsed = time.perf_counter() - clock
    print(user, elapsed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    np.save(sys.argv[3], np.stack(outputs))


if __name__ == "__main__":
    main()
