"""Programs of discriminative training."""
