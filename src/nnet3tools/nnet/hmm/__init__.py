"""What a .mdl file holds besides its network: HMM topologies, trees, transition models."""
