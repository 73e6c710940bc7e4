"""Configs of networks whose components stand in a row."""


def in_a_row(text: str) -> str:
    """The config of a network with one input, components one after the other, and one output.

    The first line of `text` is `input dim=N`, the last may be `output objective=...`. The lines
    between are `NAME TYPE KEYS`; a component reads the one before unless its line ends in
    `input=DESCRIPTOR`.
    """
    first, *lines = text.splitlines()
    last = lines.pop() if lines[-1].startswith("output ") else "output"
    source, found = "input", [f"input-node name={first}"]
    for line in lines:
        head, _, descriptor = line.partition(" input=")
        name, kind = head.split(" ", 1)
        node = f"component-node name={name} component={name} input={descriptor or source}"
        found += [f"component name={name} type={kind}", node]
        source = name
    return "\n".join([*found, f"output-node name=output input={source}{last[6:]}", ""])
