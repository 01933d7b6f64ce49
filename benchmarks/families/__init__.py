"""Registry of the families of test problems with a known truth."""

from families import bundle, graphs, holdout, reconstructions, rotations, sim3, stereo
from families.curve_fits import FITS
from families.essential import ESSENTIAL
from families.family import Family
from families.pnp import PNP
from families.registration import families as registrations

ALL_FAMILIES: tuple[Family, ...] = (
    bundle.FAMILY,
    bundle.TAILS_FAMILY,
    *reconstructions.FAMILIES,
    graphs.SMALL_GRAPHS,
    graphs.LARGE_GRAPHS,
    sim3.FAMILY,
    rotations.FAMILY,
    *FITS,
    *registrations(),
    PNP,
    ESSENTIAL,
    stereo.FAMILY,
    holdout.FAMILY,
)
FAMILIES: dict[str, Family] = {family.name: family for family in ALL_FAMILIES}
