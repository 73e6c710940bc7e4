"""Low-rank approximation of affine components: the edit commands apply-svd and reduce-rank."""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.nnet.components.affine import (
    AffineComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
)
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import name_matches_pattern, parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode
from nnet3tools.nnet.topology import remove_orphan_components, remove_orphan_nodes


@dataclass(frozen=True)
class _Factors:
    """Singular value decomposition W = left diag(singular) right, decreasing, on the host."""

    left: np.ndarray
    singular: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, component: AffineComponent) -> _Factors:
        matrix = tensor.to_host(component.linear_params).astype(np.float64)
        if not np.isfinite(matrix).all():
            raise DataError("cannot factorize a matrix with infinite or NaN elements")
        return cls(*np.linalg.svd(matrix, full_matrices=False))


def _candidate(name: str, component: Component, rank: int) -> AffineComponent | None:
    """The component if it is affine with dimensions above `rank`; else None, and a warning."""
    if not isinstance(component, AffineComponent):
        log.warning(f"Not reducing component {name} as it is not an AffineComponent.")
        return None
    if component.input_dim <= rank or component.output_dim <= rank:
        log.warning(
            f"Not reducing component {name} to rank {rank} because its dimension is "
            f"{component.input_dim} -> {component.output_dim}"
        )
        return None
    return component


def reduce_rank(nnet: Nnet, pattern: str, rank: int) -> None:
    """Replace matrices of affine components that match `pattern` by rank-`rank` approximations."""
    num_changed = 0
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if not name_matches_pattern(name, pattern):
            continue
        if (affine := _candidate(name, component, rank)) is None:
            continue
        svd = _Factors.of(affine)
        reduced = (svd.left[:, :rank] * svd.singular[:rank]) @ svd.right[:rank]
        tensor.copy(
            affine.linear_params,
            tensor.asarray(reduced.astype(np.float32), like=affine.linear_params),
        )
        before, after = svd.singular.sum(), svd.singular[:rank].sum()
        log.log(
            f"For component {name} singular value sum changed by reduce-rank command "
            f"{before - after:g} (from {before:g} to {after:g})"
        )
        num_changed += 1
    log.log(f"Reduced rank of parameters of {num_changed} components.")


def apply_svd(
    nnet: Nnet,
    pattern: str,
    bottleneck_dim: int,
    energy_threshold: float,
    shrinkage_threshold: float,
) -> None:
    """Split matching affine components into a linear one `<name>_a` and an affine one `<name>_b`.

    The dimension between them is `bottleneck_dim` or, if `energy_threshold` is positive, the
    smallest one that keeps this share of the squared singular values. A component is not split if
    its new size exceeds `shrinkage_threshold` times its size.
    """
    split: dict[int, str] = {}
    for c in range(len(nnet.components)):
        name = nnet.component_names[c]
        if not name_matches_pattern(name, pattern):
            continue
        if (affine := _candidate(name, nnet.components[c], bottleneck_dim)) is None:
            continue
        svd = _Factors.of(affine)
        energy = np.cumsum(svd.singular**2)
        if energy_threshold > 0.0:
            enough = np.searchsorted(energy, energy_threshold * energy[-1])
            # as in Kaldi, the next component is compared with this dimension, too
            bottleneck_dim = min(int(enough) + 1, len(energy))
        size = bottleneck_dim * (affine.input_dim + affine.output_dim)
        shrinkage = size / (affine.input_dim * affine.output_dim)
        if shrinkage > shrinkage_threshold:
            log.log(
                f"Shrinkage ratio {shrinkage:g} greater than threshold {shrinkage_threshold:g}: "
                f"skipping SVD for component {name}."
            )
            continue
        log.log(
            f"For component {name} singular value squared sum changed from {energy[-1]:g} to "
            f"{energy[bottleneck_dim - 1]:g}; dimension between its parts is {bottleneck_dim}"
        )
        _add_parts(nnet, name, affine, svd, bottleneck_dim)
        split[c] = name
    if split:
        _split_nodes(nnet, split)
    log.log(f"Decomposed {len(split)} components with SVD dimension {bottleneck_dim}")


def _add_parts(nnet: Nnet, name: str, affine: AffineComponent, svd: _Factors, dim: int) -> None:
    """Append components `<name>_a` and `<name>_b`: `affine` by its first `dim` singular values."""
    root = np.sqrt(svd.singular[:dim])
    linear = (svd.right[:dim] * root[:, None]).astype(np.float32)
    left = (svd.left[:, :dim] * root).astype(np.float32)
    like = affine.linear_params
    parts: list[tuple[str, UpdatableComponent]] = [
        (f"{name}_a", LinearComponent(params=tensor.asarray(linear, like=like))),
        (
            f"{name}_b",
            NaturalGradientAffineComponent(
                linear_params=tensor.asarray(left, like=like), bias_params=affine.bias_params.copy()
            ),
        ),
    ]
    for part_name, part in parts:
        if nnet.component_index(part_name) >= 0:
            raise DataError(f"the network has a component named '{part_name}' already")
        part.copy_options(affine)
        nnet.components.append(part)
        nnet.component_names.append(part_name)


def _split_nodes(nnet: Nnet, split: dict[int, str]) -> None:
    """Replace nodes of split components (number -> name) by `<node>_a` and `<node>_b`."""
    renamed = list(nnet.node_names)
    parts: dict[int, str] = {}
    for n, node in enumerate(nnet.nodes):
        if isinstance(node, ComponentNode) and node.component_index in split:
            parts[n] = split[node.component_index]
            renamed[n] += "_b"
    view = Nnet()  # the same nodes under the names that later lines refer to
    view.nodes, view.node_names = nnet.nodes, renamed
    view.components, view.component_names = nnet.components, nnet.component_names
    lines = []
    for n, name in enumerate(nnet.node_names):
        if n in parts:
            text = nnet.descriptor(n - 1).text(renamed)
            lines.append(f"component-node name={name}_a component={parts[n]}_a input={text}")
            lines.append(f"component-node name={name}_b component={parts[n]}_b input={name}_a")
        elif not (nnet.is_component_input(n) or nnet.is_input(n)):
            lines.append(view.config_line(n))
    nnet.read_config(parse_config_lines("\n".join(lines)))
    remove_orphan_nodes(nnet)
    remove_orphan_components(nnet)
