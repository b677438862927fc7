"""Measurements that settle the method's readings with numbers: what each one changes on real trajectories.

A measurement has two parts. A slow one runs the model and appends one record a problem to a file (`python -m
dystruct.decoding.study windows` and `... decode`); killed at any moment, it goes on from there. A quick one reads the
records and makes figures with intervals (`... report`), from which the tables in this folder's README.md are made.

Problems are validation items, since the figures choose defaults. Rows of one problem depend on each other, so all
intervals are bootstraps over problems, and alternatives are compared on the same problems.
"""
