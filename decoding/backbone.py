"""Masked diffusion language models, as the decoders see them: token ids in, hidden states and logits out.

A backbone is a transformers model that attends in both directions (`is_causal` false in its config) with a
tokenizer and the ids of its mask and end tokens. Some models (Dream, the embedded one) read the prediction
of position i from the output at i-1: their config says `shifted_logits`. No remote code is ever run.

Shapes: R rows, T positions, d hidden units, V tokens of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dystruct.model import EvidenceWeights

from .errors import UserError

TINY = "tiny"
SUPPORTED = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class Backbone:
    """A loaded model with all that decoding needs to know of it. Made by `load`."""

    name: str
    network: Any  # a transformers ...ForCausalLM
    tokenizer: Any  # a transformers tokenizer
    mask_id: int
    eos_id: int
    shifted: bool
    max_length: int
    weights: EvidenceWeights
    calibrated: bool
    prompt_format: str = "{prompt}"

    def __post_init__(self) -> None:
        for name, token in (("mask", self.mask_id), ("end", self.eos_id)):
            if not 0 <= token < self.vocabulary:
                raise UserError(
                    f"The {name} token id {token} of model {self.name!r} is outside its vocabulary of "
                    f"{self.vocabulary} tokens; correct the id in the model's config.json."
                )
        if self.mask_id == self.eos_id:
            raise UserError(
                f"Model {self.name!r} has the same token {self.mask_id} as its mask and its end; correct "
                f"mask_token_id or eos_token_id in its config.json."
            )

    @property
    def vocabulary(self) -> int:
        """V: rows of the output projection."""
        return int(self.network.get_output_embeddings().weight.shape[0])

    @property
    def device(self) -> torch.device:
        """Where the token ids go."""
        return self.network.get_input_embeddings().weight.device

    def hidden(self, ids: Tensor, valid: Tensor | None = None) -> Tensor:
        """Hidden states (R, T, d) that enter the output projection, for right-padded ids (R, T).

        valid: (R, T), true where a token is not padding; None when nothing is padded.
        """
        mask = None if valid is None else valid.long()
        return self.network.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits (..., V) of hidden states (..., d); the mask token is never a prediction (R15)."""
        logits = self.network.get_output_embeddings()(hidden).float()
        logits[..., self.mask_id] = -torch.inf
        return logits

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt in the model's prompt format (whose ending is not added twice)."""
        head, tail = self.prompt_format.split("{prompt}")
        text = head + prompt + ("" if tail and prompt.endswith(tail) else tail)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: list[int] | tuple[int, ...]) -> str:
        """The text of token ids."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def token_text(self, token: int) -> str:
        """The text of one token; special tokens by their name."""
        return str(self.tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))


def load(
    name_or_path: str | Path = TINY,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    weights: str | Path | None = None,
    neutral: bool = False,
) -> Backbone:
    """Load the embedded model ("tiny") or a local Hugging Face folder of a bidirectional Llama, Qwen2 or Qwen3.

    device: where to put it (default: a CUDA device if there is one, else the CPU). dtype: default float32 on the
    CPU, else the checkpoint's. weights: a calibration file, in place of the one in the model's folder; neutral:
    take neutral evidence weights whatever the folder holds.
    Raises UserError when the folder is missing, is no such model, has no mask token or is damaged.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from .calibration_file import read_calibration
    from .device import check_device

    name = str(name_or_path)
    folder = model_folder(name_or_path)
    if not folder.is_dir():
        raise UserError(f"There is no model folder {name!r}; give a folder with a config.json, or {TINY!r}.")
    if not (folder / "config.json").is_file():
        raise UserError(f"The folder {name!r} is no model: it has no config.json; give a Hugging Face model folder.")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(str(device))
    device = torch.device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else None
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers and its parsers raise any kind, bare Exceptions too
        raise UserError(
            f"The config.json of {name!r} cannot be read ({_first_line(error)}); supported model types are "
            f"{', '.join(SUPPORTED)}."
        ) from error
    if config.model_type not in SUPPORTED:
        raise UserError(
            f"Model {name!r} is of type {config.model_type!r}, which is not supported; supported types are "
            f"{', '.join(SUPPORTED)}, with is_causal false in their config."
        )
    if getattr(config, "is_causal", True):
        raise UserError(
            f"Model {name!r} attends causally, so it cannot fill masks; give a masked diffusion model, whose config "
            f"says is_causal false."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        missing = not tokenizer("a", add_special_tokens=False)["input_ids"]  # without files some kinds load empty
    except Exception as error:
        raise UserError(
            f"The tokenizer of {name!r} cannot be read ({_first_line(error)}); copy the model's tokenizer files again."
        ) from error
    if missing:
        raise UserError(f"The tokenizer of {name!r} knows no text; copy the model's tokenizer files again.")
    mask_id = _special_id(config, tokenizer, "mask", name)
    eos_id = _special_id(config, tokenizer, "eos", name)
    network = _network(AutoModelForCausalLM, folder, config, dtype, name).to(device).eval()
    largest, rows = max(tokenizer.get_vocab().values()), network.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        raise UserError(
            f"The tokenizer of {name!r} has token ids up to {largest}, but its network only {rows} tokens; copy the "
            f"tokenizer files that belong to these weights."
        )
    prompt_format = getattr(config, "prompt_format", "{prompt}")
    if not isinstance(prompt_format, str) or prompt_format.count("{prompt}") != 1:
        raise UserError(
            f"The prompt_format {prompt_format!r} in the config.json of {name!r} must name {{prompt}} once; correct it."
        )
    evidence, calibrated = (EvidenceWeights.neutral(), False) if neutral else read_calibration(weights, folder)
    return Backbone(
        name=name,
        network=network,
        tokenizer=tokenizer,
        mask_id=mask_id,
        eos_id=eos_id,
        shifted=bool(getattr(config, "shifted_logits", False)),
        max_length=int(config.max_position_embeddings),
        weights=evidence,
        calibrated=calibrated,
        prompt_format=prompt_format,
    )


def model_folder(name_or_path: str | Path) -> Path:
    """Where a model's files are: the folder itself, or the embedded model's for "tiny"."""
    return Path(str(files("dystruct.decoding.tiny"))) if str(name_or_path) == TINY else Path(name_or_path)


def _network(auto: Any, folder: Path, config: Any, dtype: torch.dtype | None, name: str) -> nn.Module:
    try:
        network, report = auto.from_pretrained(
            folder,
            config=config,
            dtype=dtype or "auto",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:
        raise UserError(
            f"The weights of {name!r} cannot be read ({_first_line(error)}); copy the model's config.json and "
            f"safetensors files again."
        ) from error
    missing = sorted(report["missing_keys"]) + sorted(str(key) for key in report.get("mismatched_keys", ()))
    if missing:
        raise UserError(
            f"The weights of {name!r} lack {len(missing)} tensors, {missing[0]} among them; copy the model's "
            f"safetensors files again."
        )
    return network


def _special_id(config: Any, tokenizer: Any, kind: str, name: str) -> int:
    """The id of the "mask" or "eos" token: the config's, else the tokenizer's."""
    found = getattr(config, f"{kind}_token_id", None)
    if isinstance(found, list):
        found = found[0] if found else None
    if found is None:
        found = getattr(tokenizer, f"{kind}_token_id", None)
    if found is None:
        raise UserError(
            f"Model {name!r} has no {kind} token: neither its config nor its tokenizer names one; set "
            f"{kind}_token_id in its config.json."
        )
    if not isinstance(found, int):
        raise UserError(f"The {kind}_token_id {found!r} in the config.json of {name!r} is no token id; correct it.")
    return found


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
