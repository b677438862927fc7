"""How fast decoding is beside its own forward passes, and beside other programs: `python -m dystruct.decoding.bench`."""
