"""The parts of a .mdl file besides the network: HMM topologies, trees, transition models."""
