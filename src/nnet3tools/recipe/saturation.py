"""The saturation of a network's sigmoids and tanhs, computed as in Kaldi's get_saturation.pl."""

from __future__ import annotations

import re

from nnet3tools.errors import DataError

_MEAN = re.compile(r"deriv-avg=[^m]+mean=([^,]+),")
_LSTM_UNITS = {
    "i_t_sigmoid": 0.25,
    "f_t_sigmoid": 0.25,
    "o_t_sigmoid": 0.25,
    "c_t_tanh": 1.0,
    "m_t_tanh": 1.0,
}
"""Parts of an LstmNonlinearityComponent, and the largest derivative of each."""


def saturation(model: str) -> float:
    """The mean saturation of the nonlinearities in the model file `model`."""
    from nnet3tools.cli.information import network_info
    from nnet3tools.nnet.model_file import read_nnet

    value = saturation_of_info(network_info(read_nnet(model)))
    if not 0.0 <= value <= 1.0:
        raise DataError(f"{model}: its nonlinearities have a saturation of {value:g}")
    return value


def saturation_of_info(text: str) -> float:
    """The mean saturation of all units, parsed from the output of nnet3-info.

    A unit's saturation is 1 - (mean derivative / largest possible derivative). 0: no statistics.
    """
    found: list[float] = []
    for line in text.splitlines():
        if "type=LstmNonlinearityComponent" in line:
            for name, largest in _LSTM_UNITS.items():
                match = re.search(name + r"=[{][^}]+deriv-avg=[^}]+mean=([^,]+),", line)
                found += [1.0 - float(match[1]) / largest] if match else []
        elif re.search(r"type=(Sigmoid|Tanh|.*GruNonlinearity)Component", line):
            largest = 0.25 if "type=SigmoidComponent" in line else 1.0
            if match := _MEAN.search(line):
                found.append(1.0 - float(match[1]) / largest)
    return sum(found) / len(found) if found else 0.0
