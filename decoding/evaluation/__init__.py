"""Evaluation: decoders on tasks with known answers, item by item on record, and the tables that follow from it.

`local` runs the three embedded domains, `harness` everything that lm-evaluation-harness knows; both write the same
folders (`run_folder`, read by `run_record`). The tables are made of these alone, or of the summaries and answers that
are kept of them. lm_eval is imported in the modules whose names begin with `harness`, and in
`__main__`, only.
"""
