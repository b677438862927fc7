"""The evidence weights that travel with a model: one JSON file, `calibration.json`, beside the model's own weights.

    format, version    of the file, and of the dystruct that wrote it
    model              fingerprint of the checkpoint that the weights were fitted on
    standardisation    null: the features enter as they are
    position, gap      weights by feature, each with an intercept beside it
    gap_base_rate      how often the gap targets were 1; null if the fit has no intercept to hold it
    provenance         which problems and how they were put, penalty lambda, counts, seed, and what the fit was worth

Weights fitted on one model mean nothing on another, so reading them for another model is an error unless forced.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dystruct.model import GAP_FEATURES, POSITION_FEATURES, EvidenceWeights

from .errors import UserError
from .files import save_json

FILE_NAME = "calibration.json"
FORMAT = "dystruct-calibration-1"
_SAMPLE = 1 << 16
_TENSOR_SAMPLE = 1 << 12
SMALL = 8 << 20  # bytes of all weights, up to which a model is told by their beginning alone
_LONGEST_HEADER = 100_000_000  # what the format allows; a damaged file may claim more


def fingerprint(folder: Path) -> str:
    """A hash of a model folder's safetensors files: their sizes, headers, and samples of their data.

    The samples are the beginning of each file's data and, where the files have more than 8 MiB together, that of each
    tensor: a fine-tune may leave the first tensor, the embedding, as it was. Smaller ones, the embedded model among
    them, are told by the first sample alone, since calibrations and results have their fingerprints on record.
    """
    digest = hashlib.sha256()
    paths = sorted(folder.glob("*.safetensors"))
    is_small = sum(path.stat().st_size for path in paths) <= SMALL
    for path in paths:
        with path.open("rb") as file:
            head, size = file.read(8), path.stat().st_size
            digest.update(f"{path.name} {size} ".encode() + head)
            length = min(int.from_bytes(head, "little"), _LONGEST_HEADER)
            beginning = file.read(length + _SAMPLE)
            digest.update(beginning)
            for start, end in [] if is_small else _tensors(beginning[:length], size - len(head) - length):
                file.seek(len(head) + length + start)
                digest.update(file.read(min(end - start, _TENSOR_SAMPLE)))
    return digest.hexdigest()[:32]


def _tensors(header: bytes, size: int) -> list[tuple[int, int]]:
    """Where each tensor starts and ends in a safetensors file's data of so many bytes; none where that is damaged."""
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        spans = sorted((int(start), int(end)) for start, end in (entry["data_offsets"] for entry in entries.values()))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return []  # loading it says so
    return spans if all(0 <= start <= end <= size for start, end in spans) else []


def write_calibration(path: Path, weights: EvidenceWeights, model_fingerprint: str, provenance: dict[str, Any]) -> None:
    """Write the weights and where they came from (settings, counts, seed), whole or not at all; UserError if not."""
    content = {
        "format": FORMAT,
        "version": version("dystruct"),
        "model": model_fingerprint,
        "standardisation": None,
        "position": dict(zip(POSITION_FEATURES, weights.position.tolist(), strict=True)),
        "position_intercept": weights.position_intercept,
        "gap": dict(zip(GAP_FEATURES, weights.gap.tolist(), strict=True)),
        "gap_intercept": weights.gap_intercept,
        "gap_base_rate": weights.gap_base_rate,
        "provenance": provenance,
    }
    save_json(path, content)


def read_calibration(path: str | Path | None, folder: Path, *, force: bool = False) -> tuple[EvidenceWeights, bool]:
    """The weights for the model in `folder`, and whether they were read from a file (else they are the neutral ones).

    path: the file to read; None takes the one in the folder, if there is one. force: take weights that were fitted on
    another model. Raises UserError for a file that is missing, damaged, or without force fitted on another model.
    """
    source = folder / FILE_NAME if path is None else Path(path)
    if path is None and not source.exists():
        return EvidenceWeights.neutral(), False
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
        weights = EvidenceWeights(
            torch.tensor([content["position"][name] for name in POSITION_FEATURES], dtype=torch.float64),
            content["position_intercept"],
            torch.tensor([content["gap"][name] for name in GAP_FEATURES], dtype=torch.float64),
            content["gap_intercept"],
            content["gap_base_rate"],
        )
        fitted_on = content["model"]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RuntimeError) as error:
        raise UserError(
            f"The calibration {str(source)!r} cannot be read ({type(error).__name__}: {error}); fit it again with "
            f"`dystruct calibrate`."
        ) from error
    if fitted_on != fingerprint(folder) and not force:
        raise UserError(
            f"The calibration {str(source)!r} was fitted on another model than {str(folder)!r}; fit one for it with "
            f"`dystruct calibrate`, or force it (--force-weights, or force_weights=True)."
        )
    return weights, True
