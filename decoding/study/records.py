"""The study's files of records: their format, and the digits that a record keeps."""

from __future__ import annotations

from functools import partial

from .. import records

FORMAT = "dystruct-study-1"
DIGITS = 6  # significant ones

open_records = partial(records.open_records, format=FORMAT, digits=DIGITS)
read_records = partial(records.read_records, format=FORMAT)
