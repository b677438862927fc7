"""How fast decoding is, beside its own forward passes and other programs: `python -m dystruct.decoding.bench`."""
