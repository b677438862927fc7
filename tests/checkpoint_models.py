"""The written checkpoints as loaded models, and what their tests share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    BertConfig,
    BertForPreTraining,
    FNetConfig,
    LongformerConfig,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from checkpoints import Checkpoint, byte_pairs, dream_outputs, llada_outputs, write_dream, write_llada
from dystruct.decoding import Backbone, DyStruct, UserError, load
from dystruct.model import PriorConfig

Outputs = Callable[..., tuple[Tensor, Tensor]]


OUTPUTS: dict[str, Outputs] = {"llada": llada_outputs, "dream": dream_outputs}


MASKED = ("bert", "roberta", "modernbert")


ALL = ("llada", "dream", *MASKED)


SHORT = DyStruct(structure="sample", prior=PriorConfig(4, 10))


def write_masked(folder: Path, kind: str, **entries: Any) -> Path:
    """A random masked LM of two layers with its tokenizer: BERT's as a vocabulary, the others' byte pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "bert":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sum", "of", "is", "1", "2", "##2", "3", "##0"]
        (folder / "vocab.txt").write_text("\n".join([*words, *"abcdefghijk"]) + "\n")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 48}')
        rows, special = 25, {}
    else:
        cls, sep, mask, pad = (
            ("<s>", "</s>", "<mask>", "<pad>") if kind == "roberta" else ("[CLS]", "[SEP]", "[MASK]", "[PAD]")
        )
        names = (cls, pad, sep, mask)
        pairs = byte_pairs(names)
        ids = {name: pairs.token_to_id(name) for name in names}
        ends = {"eos_token": sep} if kind == "roberta" else {}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=pairs, cls_token=cls, sep_token=sep, mask_token=mask, pad_token=pad, **ends
        )
        tokenizer.save_pretrained(folder)
        rows = pairs.get_vocab_size()
        special = {
            "pad_token_id": ids[pad] if kind == "modernbert" else 1,
            "eos_token_id": ids[sep],
            "bos_token_id": ids[cls],
        }
    config = {
        "bert": BertConfig, "roberta": RobertaConfig, "modernbert": ModernBertConfig, "fnet": FNetConfig,
        "longformer": LongformerConfig, "albert": AlbertConfig,
    }[kind](
        vocab_size=rows, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=66 if kind == "roberta" else 64, initializer_range=0.3, **special, **entries,
    )  # fmt: skip
    torch.manual_seed(3)
    (BertForPreTraining if kind == "bert" else AutoModelForMaskedLM.from_config)(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "llada": write_llada(root / "LLaDA-8B-Instruct", chat=True),
        "dream": write_dream(root / "dream", chat=True),
    }


@pytest.fixture(scope="session")
def models(checkpoints: dict[str, Checkpoint], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backbone]:
    folders = {kind: checkpoint.folder for kind, checkpoint in checkpoints.items()}
    folders |= {kind: write_masked(tmp_path_factory.mktemp(kind), kind) for kind in MASKED}
    return {kind: load(folder, device="cpu") for kind, folder in folders.items()}


@pytest.fixture
def llada(checkpoints: dict[str, Checkpoint], tmp_path: Path) -> Path:
    """A LLaDA's folder to be changed."""
    return Path(shutil.copytree(checkpoints["llada"].folder, tmp_path / "model"))


@pytest.fixture
def dream(checkpoints: dict[str, Checkpoint], tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoints["dream"].folder, tmp_path / "model"))


def rewrite(path: Path, **changes: Any) -> None:
    """Change entries of a JSON file; None takes one out."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def refused(folder: Path | str, match: str, **options: Any) -> str:
    with pytest.raises(UserError, match=match) as caught:
        load(folder, **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith("."), message
    return message


def random_ids(model: Backbone) -> tuple[Tensor, Tensor]:
    """Ids (3, 15) of rows of 15, 8 and 1 tokens, and which of them are valid."""
    ids = torch.randint(0, model.vocabulary, (3, 15), generator=torch.Generator().manual_seed(7))
    return ids, torch.arange(15) < torch.tensor([15, 8, 1])[:, None]


def assert_computes(model: Backbone, checkpoint: Checkpoint, outputs: Outputs) -> None:
    """States and logits equal the hand-written network's, with and without padding."""
    ids, padded = random_ids(model)
    with torch.inference_mode():
        for valid in (None, padded):
            states, logits = outputs(checkpoint, ids, valid)
            hidden = model.hidden(ids, valid)
            counted = torch.ones_like(ids).bool() if valid is None else valid
            torch.testing.assert_close(hidden[counted], states[counted], atol=1e-5, rtol=1e-5)
            found = model.logits(hidden)
            assert found.shape == logits.shape and (found[..., model.mask_id] == -torch.inf).all()
            assert logits[counted].std() > 0.3, "logits that are all alike would prove nothing"
            logits[..., model.mask_id] = -torch.inf
            torch.testing.assert_close(found[counted], logits[counted], atol=1e-5, rtol=1e-5)
