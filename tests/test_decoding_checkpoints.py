"""What published checkpoints compute: LLaDA, Dream and masked LMs through `load`, compared with plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_models import (
    ALL,
    MASKED,
    OUTPUTS,
    SHORT,
    assert_computes,
    random_ids,
)
from checkpoints import Checkpoint, dream_outputs, llada_outputs, write_dream, write_llada
from dystruct.decoding import Backbone, Block, generate, load

pytestmark = pytest.mark.filterwarnings("ignore:Model .* has no calibrated")


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_published_layout_computes_its_architecture(
    models: dict[str, Backbone], checkpoints: dict[str, Checkpoint], kind: str
) -> None:
    assert_computes(models[kind], checkpoints[kind], OUTPUTS[kind])


@pytest.mark.parametrize(
    "settings",
    [
        {"tied": True, "groups": 2, "shards": 1, "mask_token_id": 5, "eos_token_id": 2, "pad_token_id": 1},
        {"groups": 1, "n_kv_heads": None, "multi_query_attention": True, "shards": 5},
        {"rope_theta": 10000.0, "rms_norm_eps": 1e-3, "mlp_hidden_size": None, "mlp_ratio": 40 / 32, "spare": 9},
        {"dtype": torch.bfloat16},
    ],
    ids=["iLLaDA: tied, fewer key-value heads", "one key-value head", "other figures", "stored in bfloat16"],
)
@pytest.mark.filterwarnings("ignore:Texts of model")  # iLLaDA's end token is not that of the tokenizer written here
def test_variants_of_llada(tmp_path: Path, settings: dict[str, Any]) -> None:
    checkpoint = write_llada(tmp_path / "model", **settings)
    model = load(checkpoint.folder)
    assert model.network.dtype == torch.float32, "on the CPU, whatever is stored"
    checkpoint.config |= {"n_kv_heads": settings.get("groups", 4)}
    assert_computes(model, checkpoint, llada_outputs)


@pytest.mark.parametrize(
    "settings", [{"shards": 1}, {"rope_theta": 1e4, "use_sliding_window": True, "sliding_window": 4}]
)
def test_variants_of_dream(tmp_path: Path, settings: dict[str, Any]) -> None:
    checkpoint = write_dream(tmp_path / "model", **settings)
    assert_computes(load(checkpoint.folder), checkpoint, dream_outputs)


@pytest.mark.parametrize("kind", MASKED)
def test_a_masked_lm_is_projected_where_asked_by_its_own_head(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    ids, valid = random_ids(model)
    with torch.inference_mode():
        whole = model.network.network(input_ids=ids, attention_mask=valid.long()).logits
        found = model.logits(model.hidden(ids, valid)[:, 3:6])
        whole[..., model.mask_id] = -torch.inf
    assert whole.shape[-1] == model.vocabulary
    torch.testing.assert_close(found[:2], whole[:2, 3:6], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_padding_and_the_rest_of_the_batch_change_nothing(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    ids, valid = random_ids(model)
    ids[~valid] = model.mask_id
    with torch.inference_mode():
        together = model.hidden(ids, valid)
        for r, length in enumerate((15, 8, 1)):
            alone = model.hidden(ids[r : r + 1, :length])
            torch.testing.assert_close(together[r, :length], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_attention_goes_in_both_directions(models: dict[str, Backbone], kind: str) -> None:
    model = models[kind]
    ids = torch.arange(6, 16)[None]
    last, first = ids.clone(), ids.clone()
    last[0, -1] = first[0, 0] = 20
    with torch.inference_mode():
        states = model.hidden(ids)
        for changed, inner in ((last, slice(0, 9)), (first, slice(1, 10))):
            assert ((model.hidden(changed) - states).abs().amax(-1)[0, inner] > 1e-4).all()


@pytest.mark.parametrize("kind", OUTPUTS)
def test_predictions_are_read_where_the_architecture_says(
    models: dict[str, Backbone], checkpoints: dict[str, Checkpoint], kind: str
) -> None:
    """One pass over a window of 5: token i is the most probable of Dream's output i-1, of LLaDA's output i."""
    model = models[kind]
    assert model.shifted == (kind == "dream")
    prompt = model.encode("the sum")
    _, logits = OUTPUTS[kind](checkpoints[kind], torch.tensor([prompt + [model.mask_id] * 5]))
    logits[..., model.mask_id] = -torch.inf
    start = len(prompt) - int(kind == "dream")
    (generation,) = generate(model, ["the sum"], Block(5, passes=1), max_new_tokens=5)
    assert list(generation.tokens) == logits[0, start : start + 5].argmax(-1).tolist()
    wanted = logits[0, start : start + 5].softmax(-1).amax(-1).tolist()
    found = {c.position: c.confidence for c in generation.windows[0].steps[0].commits}
    assert [found[p] for p in range(5)] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("kind", ["llada", "dream", "modernbert"])
def test_bfloat16_comes_near_and_keeps_confidences_in_float32(models: dict[str, Backbone], kind: str) -> None:
    model = load(models[kind].name, dtype="bfloat16")
    ids, valid = random_ids(model)
    with torch.inference_mode():
        near, exact = (m.logits(m.hidden(ids, valid))[valid] for m in (model, models[kind]))
    assert near.dtype == torch.float32
    kept = torch.arange(model.vocabulary) != model.mask_id
    difference = (near - exact)[:, kept].norm() / exact[:, kept].norm()
    assert 0 < difference < 0.05
    (generation,) = generate(model, ["the sum"], Block(8), max_new_tokens=8)
    confidences = [c.confidence for s in generation.windows[0].steps for c in s.commits]
    assert all(0 < c <= 1 for c in confidences)
    assert any(torch.tensor(c).bfloat16().item() != c for c in confidences)


@pytest.mark.parametrize("kind", ALL)
def test_a_whole_decoding(models: dict[str, Backbone], kind: str) -> None:
    """Two prompts together give what each gives alone; nothing is left masked."""
    options: dict[str, Any] = {"max_new_tokens": 18, "temperature": 0.7, "seed": 4}
    prompts = ["the sum of 12", "the 2"]
    together = generate(models[kind], prompts, SHORT, **options)
    for prompt, generation in zip(prompts, together, strict=True):
        assert models[kind].mask_id not in generation.tokens
        assert {"diagnostic", "resolve"} <= set(generation.passes)
        (alone,) = generate(models[kind], [prompt], SHORT, **options)
        assert alone.tokens == generation.tokens and alone.text == generation.text
