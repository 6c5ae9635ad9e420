"""The sampling that the model comes with."""

DEFAULTS = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}
"""For generation_config.json."""
