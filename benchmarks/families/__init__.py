"""Families of problems with a known truth, by name."""

from families.essential import ESSENTIAL
from families.family import Family
from families.fits import FITS
from families.pnp import PNP
from families.registration import families as registrations

FAMILIES: dict[str, Family] = {family.name: family for family in (*FITS, *registrations(), PNP, ESSENTIAL)}
