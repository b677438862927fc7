"""The embedded model as it ships: an ordinary folder, calibrated, that decodes the same whatever shares its batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from dystruct.decoding import Backbone, Block, DyStruct, Generation, generate, load
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.tiny.accuracy import measure_accuracy
from dystruct.decoding.tiny.problems import problems
from dystruct.decoding.tiny.scoring import is_right


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    return load("tiny")


def test_the_folder_is_small_and_in_bfloat16() -> None:
    folder = model_folder("tiny")
    files = [path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".md")]
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "README.md"} <= {
        path.name for path in files
    }
    assert sum(path.stat().st_size for path in files) < 20e6
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118


def test_it_is_shifted_bidirectional_and_calibrated(tiny: Backbone) -> None:
    assert tiny.shifted and tiny.calibrated and not tiny.network.config.is_causal
    assert tiny.mask_id == tiny.tokenizer.mask_token_id and tiny.eos_id == tiny.tokenizer.eos_token_id
    ids = torch.tensor([tiny.encode("Tom has 3 apples.")])
    other = ids.clone()
    other[0, -1] = tiny.eos_id
    with torch.inference_mode():
        assert not torch.equal(tiny.hidden(ids)[0, 0], tiny.hidden(other)[0, 0])


def test_the_prompt_format_ends_once(tiny: Backbone) -> None:
    assert tiny.encode("Tom has 3 apples.") == tiny.encode("Tom has 3 apples.\n")


@pytest.mark.parametrize("decoder", [Block(8), DyStruct(), DyStruct(structure="sample")])
def test_a_batch_gives_the_texts_of_one_prompt_at_a_time(tiny: Backbone, decoder: Block | DyStruct) -> None:
    prompts = [problem.question for problem in problems("maths", "test", 4)]
    together = generate(tiny, prompts, decoder, max_new_tokens=40, batch_size=3)
    alone = [generate(tiny, [prompt], decoder, max_new_tokens=40)[0] for prompt in prompts]
    assert [found.tokens for found in together] == [found.tokens for found in alone]


def test_its_accuracy_is_counted_from_its_texts(tiny: Backbone) -> None:
    found = measure_accuracy(tiny, Block(8), count=4, max_new_tokens=100, batch_size=3)
    asked = problems("maths", "test", 4)
    texts = generate(tiny, [problem.question for problem in asked], Block(8), max_new_tokens=100)
    assert found.correct == sum(is_right(p, g.text) for g, p in zip(texts, asked, strict=True))
    assert found.count == 4 and found.interval[0] <= found.accuracy <= found.interval[1]
    assert found.settings["decoder"] == "Block"


def test_a_generation_of_it_survives_its_file(tiny: Backbone, tmp_path: Path) -> None:
    (found,) = generate(tiny, [problems("maths", "test", 1)[0].question], DyStruct(structure="sample"))
    found.save(tmp_path / "trace.json")
    assert Generation.load(tmp_path / "trace.json") == found
    assert found.stop_reason in ("eos", "length", "budget") and found.forward_passes <= 256
