"""The most likely tokens of up to 64 rows without their logits, by a copy of the vocabulary in 8-bit integers."""
