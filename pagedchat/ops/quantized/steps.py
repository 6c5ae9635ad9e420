"""How floats are brought into 4 bits, in numbers: what torch and kernels have in common. Knows neither."""

STEPS_4 = 15
"""From the least digit to the largest."""
SHARES = (1.0, 0.92, 0.84)
"""Of the span of a group, that are tried."""
FITS = 2
"""Of the best of them, once more."""
ZERO_OF_4_BITS = 8
"""What is taken off a digit of 4 bits, which is stored as 0 to 15."""
