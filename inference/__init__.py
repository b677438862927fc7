"""What follows from a window's diagnostics: the exact posterior over structures, and the rules that decode with it."""

from .consensus import consensus_partition, expected_variation_of_information
from .joint import JointMaximum
from .length import LengthPosterior, length_posterior
from .posterior import RankedPartition, StructurePosterior, posterior
from .rules import CONSENSUS, FIXED, LENGTH_RULES, MAP, RULES, SAMPLE, SHUFFLED, StructureRule, fixed, shuffled
from .semimarkov import SemiMarkov

__all__ = [
    "CONSENSUS",
    "FIXED",
    "LENGTH_RULES",
    "MAP",
    "RULES",
    "SAMPLE",
    "SHUFFLED",
    "JointMaximum",
    "LengthPosterior",
    "RankedPartition",
    "SemiMarkov",
    "StructurePosterior",
    "StructureRule",
    "consensus_partition",
    "expected_variation_of_information",
    "fixed",
    "length_posterior",
    "posterior",
    "shuffled",
]
