"""Counters of the server, and their text for Prometheus."""

from __future__ import annotations

from typing import Any

from nnet3tools.fast_dataclasses import dataclass, field, fields


def _counter(text: str, kind: str = "counter") -> Any:
    return field(default=0, metadata={"help": text, "kind": kind})


@dataclass
class Counters:
    """Counts of the server's work since its start; only the event loop's thread changes them."""

    streams: int = _counter("Connections that are open now", "gauge")
    connections_total: int = _counter("WebSocket connections accepted, refused ones included")
    refused_total: int = _counter("Connections refused because all streams were in use")
    faults_total: int = _counter("Connections closed because of an error of the client")
    failures_total: int = _counter("Connections closed because of an error of the server")
    results_total: int = _counter("Results sent")
    words_total: int = _counter("Words in these results")
    sound_seconds_total: float = _counter("Seconds of sound received")
    work_seconds_total: float = _counter("Seconds that threads worked on streams, or waited to")
    network_chunks_total: int = _counter("Chunks of sound that the network computed")
    network_minibatches_total: int = _counter("Minibatches in which it computed them")

    def text(self) -> str:
        """The counters as text in Prometheus's exposition format."""
        lines = []
        for item in fields(self):
            name, kind = f"nnet3_{item.name}", item.metadata["kind"]
            lines += [f"# HELP {name} {item.metadata['help']}", f"# TYPE {name} {kind}"]
            lines.append(f"{name} {getattr(self, item.name):.10g}")
        return "\n".join(lines) + "\n"
