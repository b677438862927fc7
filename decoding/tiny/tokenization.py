"""The embedded model's tokenizer: byte-level BPE with single digits."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

EOS, MASK = "<|endoftext|>", "<|mask|>"


def build_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Learn a vocabulary of `vocabulary` tokens (bytes and the two special tokens included) from `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[EOS, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def special_token(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token, which must be in the vocabulary."""
    found = tokenizer.token_to_id(token)
    assert found is not None, f"the tokenizer has no {token}"
    return found
