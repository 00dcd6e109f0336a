"""Statistics of control loops: pure functions of numbers, numpy and scipy alone (measurement.md §6 to §11 and §13).

`ranks` percentiles and their intervals; `binomial` bounds on a miss probability; `plan` how long a run must be; `burst`
misses that come together; `dependence` diagnostics of a series; `contrast` two samples; `tail` advisory extrapolation.
"""
