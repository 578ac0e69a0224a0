"""Publishing a version of the weights: all engines report it, or none goes on."""
