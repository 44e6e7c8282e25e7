"""How sure a number is: bootstrap, paired tests, proportions, power, and the lengths that follow from them. NumPy and float64, no jax.

Axes: R runs (one training seed each), U documents or trials that every run was measured on, N lengths, B resamples, M tasks. A cell of
(R, U) carries a sum and a count, so that every mean is one division at the end and weighs targets, not documents. Runs are paired: run r
of two encodings saw the same data in the same order.
"""
