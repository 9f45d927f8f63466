"""a seed, names -> the seed of one purpose, which shares no random numbers with others."""

import hashlib

# Learners from which on an interval over them is computed and used: of two, one of which failed, it
# is wider than any difference; of one there is none, whatever the number of its episodes.
SEEDS_OF_INTERVAL = 4


def derive_seed(seed: int, verb: str, model: str) -> int:
    """Returns the seed of collecting, training or evaluating a model, from `seed` and names
    alone.
    """
    return named_seed(seed, f"{verb}@{model}", verb)


def named_seed(seed: int, stage: str, purpose: str) -> int:
    """Returns the seed of a purpose of a stage: 32 bits of the hash of all three."""
    digest = hashlib.sha256(f"{seed}/{stage}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "little")
