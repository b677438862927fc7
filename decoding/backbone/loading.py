"""`load`: finds a model on disk or on the Hugging Face Hub, reads it with transformers, checks it, makes a `Backbone`.

Everything that can be wrong with a model's name, its files or this machine ends as a `UserError` of one sentence.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from dystruct.model import EvidenceWeights

from ..calibration_file import read_calibration
from ..errors import UserError
from .backbone import Backbone, first_line
from .formats import Format, recognise
from .masked_lm import adapt
from .placing import checked_device, checked_dtype, checked_map, has_accelerate, memory_errors
from .prompt_format import check_prompt_format, check_special_tokens

TINY = "tiny"
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


@dataclass(frozen=True)
class _Source:
    """Where a model is: its name as the user gave it, a folder with its config.json, and how transformers finds it."""

    name: str
    folder: Path
    where: str
    options: dict[str, Any]

    @property
    def remedy(self) -> str:
        return "download them again" if "revision" in self.options else "copy them again"


def load(
    name_or_path: str | Path = TINY,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
    device_map: Any = None,
    weights: str | Path | None = None,
    force_weights: bool = False,
    neutral: bool = False,
    prompt_format: str | None = None,
    compiled: bool = False,
    **options: Any,
) -> Backbone:
    """Load the embedded model ("tiny"), a model folder, or a model of the Hugging Face Hub.

    Formats: LLaDA, Dream, Llama, Qwen2 and Qwen3 that attend in both directions, masked LMs (BERT, RoBERTa,
    ModernBERT, …). device: where to put the model (default: a CUDA device if there is one, else the CPU). dtype:
    default float32 on the CPU, else the checkpoint's. revision: a branch, tag or commit of the Hub. device_map:
    instead of a device, how accelerate spreads the model over several ("auto", or a dictionary). weights: a
    calibration file, in place of the one in the model's folder; force_weights: take it though it was fitted on another
    model; neutral: take neutral evidence weights whatever the folder holds. prompt_format: what stands around a prompt
    that is no user's turn, with special tokens as the tokenizer writes them, as in "<|beginoftext|>{prompt}"; default
    the config's, else for a masked LM its first token, and nothing for others. compiled: let torch.compile make the
    forward pass, which takes a while at first and pays in long runs. options: further arguments of transformers'
    `from_pretrained`, such as quantization_config, or distributed_config, which under torchrun gives each process a
    part of every layer: DistributedConfig(tp_plan="auto").

    Raises UserError when the model is not found, is of no such format, has no mask token, is damaged or does not fit
    into the device's memory.
    """
    if device is not None and device_map is not None:
        raise UserError("device and device_map exclude each other; give one of them.")
    if neutral and (weights is not None or force_weights):
        raise UserError("neutral and a calibration's weights exclude each other; give one of them.")
    if "torch_dtype" in options:
        raise UserError("torch_dtype is called dtype here; say dtype=….")
    if device_map is not None and not has_accelerate():
        raise UserError("A device_map needs accelerate; install it with: pip install 'dystruct[accelerate]'.")
    if prompt_format is not None:
        check_prompt_format(prompt_format)
    device = torch.device(checked_device(device))
    stored = device.type != "cpu" or device_map is not None
    options |= {"dtype": checked_dtype(dtype) or ("auto" if stored else torch.float32)}
    if device_map is not None:
        options["device_map"] = checked_map(device_map)
    elif device.type != "cpu" and has_accelerate() and "distributed_config" not in options:
        options["device_map"] = {"": device}  # each tensor goes there as it is read
    source = _find(name_or_path, revision)
    content = _read_config(source)
    with _quiet(), memory_errors(source.name):
        found = recognise(content, source.folder, source.name)
        tokenizer = _tokenizer(source, found)
        check_special_tokens(prompt_format or "", tokenizer, source.name)
        mask_id = _special_id(content, tokenizer, "mask", source.name)
        eos_id = _special_id(content, tokenizer, "eos", source.name)
        network = _network(source, found, options)
        if not {"device_map", "distributed_config"} & options.keys() and not _quantized(network):
            network.to(device)
        network.eval()
        _check_vocabulary(tokenizer, network, source)
        context = _context(network, source.name)
        if found.masked_lm:
            network = adapt(network, mask_id, source.name)
        _check_directions(network, source.name)
    evidence, calibrated = (
        (EvidenceWeights.neutral(), False) if neutral else read_calibration(weights, source.folder, force=force_weights)
    )
    model = Backbone(
        name=source.name,
        network=network,
        tokenizer=tokenizer,
        mask_id=mask_id,
        eos_id=eos_id,
        shifted=found.shifted,
        max_length=context,
        weights=evidence,
        calibrated=calibrated,
        prompt_format=prompt_format or _prompt_format(content, tokenizer, found, source.name),
        end_ids=frozenset(_end_ids(content, tokenizer, found)),
        compiled=compiled,
    )
    _warn_of_other_end(model)
    if compiled:
        with memory_errors(source.name):
            model.warm_up()
    return model


def model_folder(name_or_path: str | Path, revision: str | None = None) -> Path:
    """Where a model's files are: the folder itself, the embedded model's for "tiny", the Hub's cache for its models.

    Fetches the config.json of a model of the Hub; UserError if there is none.
    """
    return _find(name_or_path, revision).folder


def _find(name_or_path: str | Path, revision: str | None) -> _Source:
    name = str(name_or_path)
    folder = Path(str(files("dystruct.decoding.tiny"))) if name == TINY else Path(name_or_path)
    if os.path.exists(folder) or not _HUB_NAME.fullmatch(name):  # Path.exists raises for a name that is too long
        if revision is not None:
            raise UserError(f"revision has no use with the folder {name!r}; leave it out.")
        return _Source(name, folder, str(folder), {"local_files_only": True})
    from transformers.utils import cached_file

    try:
        _reach(name, revision)
        config = cached_file(name, "config.json", revision=revision)
        reason = "it has no config.json"
    except Exception as error:  # of the connection, of the Hub, of a gated or private model
        config, reason = None, first_line(error)
    if config is None:
        at = "" if revision is None else f" at revision {revision!r}"
        raise UserError(
            f"There is no model folder {name!r}, and no model of this name{at} came from the Hugging Face Hub "
            f"({reason.rstrip('.')}); check the name and the connection, or give a folder with a config.json."
        )
    # What is read from here on is of the one commit that this config.json is of.
    return _Source(name, Path(config).parent, name, {"revision": Path(config).parent.name})


def _reach(name: str, revision: str | None) -> None:
    """Ask the Hub once for a config.json that is not on this machine, and raise at once if it cannot be reached.

    Fetching a file would go on trying for half a minute. An answer of any other kind is left to it.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    if not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        with suppress(HfHubHTTPError):
            get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision))


def _read_config(source: _Source) -> dict[str, Any]:
    if not os.path.isdir(source.folder):
        raise UserError(f"There is no model folder {source.name!r}; give a folder with a config.json, or {TINY!r}.")
    path = source.folder / "config.json"
    if not os.path.isfile(path):
        raise UserError(
            f"The folder {source.name!r} is no model: it has no config.json; give a Hugging Face model folder."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it holds no entries")
    except (OSError, ValueError) as error:
        raise UserError(
            f"The config.json of {source.name!r} is damaged ({first_line(error).rstrip('.')}): {source.remedy}."
        ) from error
    return content


def _tokenizer(source: _Source, found: Format) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.tokenization_utils_base import VERY_LARGE_INTEGER
    from transformers.utils import cached_file

    try:
        kind, options = found.tokenizer_class, {**source.options, "trust_remote_code": False}
        if kind is None:
            kind, options = AutoTokenizer, {**options, "config": found.config}
        elif cached_file(
            source.where, "tokenizer.json", _raise_exceptions_for_missing_entries=False, **source.options
        ):  # says all, more than a class that is made from its vocabulary
            kind = PreTrainedTokenizerFast
        tokenizer = kind.from_pretrained(source.where, **options)
        known = bool(tokenizer("a", add_special_tokens=False)["input_ids"])  # without files some kinds load empty
        # What is too long is the network's to say; the tokenizer would warn of a limit of its own beside it.
        tokenizer.model_max_length = VERY_LARGE_INTEGER
    except Exception as error:  # transformers and its parsers raise any kind, bare Exceptions too
        raise UserError(
            f"The tokenizer of {source.name!r} cannot be read ({first_line(error)}); its tokenizer files are missing "
            f"or damaged: {source.remedy}."
        ) from error
    if not known:
        raise UserError(f"The tokenizer of {source.name!r} knows no text; its files are missing: {source.remedy}.")
    return tokenizer


def _network(source: _Source, found: Format, options: dict[str, Any]) -> Any:
    try:
        network, report = found.network_class.from_pretrained(
            source.where,
            config=found.config,
            key_mapping=found.names,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **source.options,
            **options,
        )
    except ImportError as error:
        raise UserError(
            f"Model {source.name!r} needs a package that is not installed ({first_line(error)}); install it."
        ) from error
    except Exception as error:
        given = ", ".join(sorted(options.keys() - {"dtype"}))
        raise UserError(
            f"The weights of {source.name!r} cannot be read ({first_line(error)}); "
            + (f"check {given}, or " if given else "")
            + f"its config.json or its safetensors files are missing, damaged or do not belong together: "
            f"{source.remedy}."
        ) from error
    missing = sorted(report["missing_keys"]) + sorted(str(key) for key in report.get("mismatched_keys", ()))
    if missing:
        raise UserError(
            f"The weights of {source.name!r} lack {len(missing)} tensors, {missing[0]} among them; its safetensors "
            f"files are not complete: {source.remedy}."
        )
    # A masked LM may come with a pooler or another head; in a model of the other kinds each tensor counts.
    unknown = [] if found.masked_lm or _quantized(network) else sorted(report["unexpected_keys"])
    if unknown:
        raise UserError(
            f"The weights of {source.name!r} have {len(unknown)} tensors that its architecture has not, {unknown[0]} "
            f"among them; give a checkpoint of the architecture that its config.json names."
        )
    return network


def _quantized(network: Any) -> bool:
    return getattr(network, "hf_quantizer", None) is not None


def _check_vocabulary(tokenizer: Any, network: Any, source: _Source) -> None:
    largest, rows = max(tokenizer.get_vocab().values()), network.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        raise UserError(
            f"The tokenizer of {source.name!r} has token ids up to {largest}, but its network only {rows} tokens; give "
            f"it the tokenizer files that belong to these weights."
        )


@torch.inference_mode()
def _check_directions(network: Any, name: str) -> None:
    """The first position must see the others: versions of transformers differ in what they make of is_causal."""
    device = network.get_input_embeddings().weight.device
    first, second = (torch.tensor([[0] + [other] * 5], device=device) for other in (1, 2))
    states = [network.base_model(input_ids=ids, attention_mask=None, use_cache=False) for ids in (first, second)]
    if torch.equal(*(state.last_hidden_state[:, 0] for state in states)):
        raise UserError(
            f"Model {name!r} attends causally here, so it cannot fill masks; install transformers 5.2 or newer, or "
            f"leave options out that change its attention."
        )


def _context(network: Any, name: str) -> int:
    """How many tokens fit: the config's positions, without those before the first token (RoBERTa has such)."""
    positions = getattr(network.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        raise UserError(
            f"The config.json of {name!r} does not say how many tokens the model can read; set "
            f"max_position_embeddings in it."
        )
    embedding = getattr(getattr(network.base_model, "embeddings", None), "position_embeddings", None)
    before = getattr(embedding, "padding_idx", None)
    return positions if before is None else positions - before - 1


def _special_id(content: dict[str, Any], tokenizer: Any, kind: str, name: str) -> int:
    """The id of the "mask" or "eos" token: the config's, else the tokenizer's (BERT ends with its separator)."""
    found = content.get(f"{kind}_token_id")
    if isinstance(found, list):
        found = found[0] if found else None
    for own in (kind, "sep") if kind == "eos" else (kind,):
        if found is None:
            found = getattr(tokenizer, f"{own}_token_id", None)
    if found is None:
        raise UserError(
            f"Model {name!r} has no {kind} token: neither its config nor its tokenizer names one; set "
            f"{kind}_token_id in its config.json."
        )
    if not isinstance(found, int):
        raise UserError(f"The {kind}_token_id {found!r} in the config.json of {name!r} is no token id; correct it.")
    return found


def _warn_of_other_end(model: Backbone) -> None:
    """Warn where the tokenizer's own end token ends no text, since the config names another."""
    own = getattr(model.tokenizer, "eos_token_id", None)
    if own is not None and own not in model.end_ids:
        warnings.warn(
            f"Texts of model {model.name!r} end with token {model.eos_id}, {model.token_text(model.eos_id)!r}, as its "
            f"config says, and not with its tokenizer's end token {own}, {model.token_text(own)!r}; correct "
            f"eos_token_id in its config.json if that is wrong.",
            stacklevel=3,
        )


def _end_ids(content: dict[str, Any], tokenizer: Any, found: Format) -> Iterator[int]:
    """The tokens beside eos_id that end a text: further ones of the config, and the end of a chat model's turn."""
    named = content.get("eos_token_id")
    yield from (token for token in (named if isinstance(named, list) else ()) if isinstance(token, int))
    turn_end = tokenizer.get_vocab().get(found.turn_end)
    if turn_end is not None and getattr(tokenizer, "chat_template", None):
        yield turn_end


def _prompt_format(content: dict[str, Any], tokenizer: Any, found: Format, name: str) -> str:
    """The config's, or for a masked LM one that begins as the texts it was trained on."""
    start = (getattr(tokenizer, "cls_token", None) or "") if found.masked_lm else ""
    prompt_format = content.get("prompt_format", start + "{prompt}")
    if not isinstance(prompt_format, str) or prompt_format.count("{prompt}") != 1:
        raise UserError(
            f"The prompt_format {prompt_format!r} in the config.json of {name!r} must name {{prompt}} once; correct it."
        )
    return prompt_format


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own reports and bars: what matters in the reports becomes an error here.

    The bars of files that are fetched from the Hub stay, which take long.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from transformers.utils import logging

    set_hub = disable_progress_bars if are_progress_bars_disabled() else enable_progress_bars
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()  # the Hub's too
    set_hub()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
            set_hub()
