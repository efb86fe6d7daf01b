"""Ground of all packages: errors, signals, workers, random numbers, kernels and their compilation."""
