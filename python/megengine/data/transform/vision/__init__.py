"""Transforms of images and what belongs to them: boxes, masks, key points."""

from . import functional
from .transform import *
