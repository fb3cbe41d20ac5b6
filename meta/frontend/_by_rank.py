"""Operators and letters of layouts by the number of spatial axes."""

from __future__ import annotations

from typing import Final

import meta

CONV: Final = {1: meta.conv1d, 2: meta.conv2d, 3: meta.conv3d}
CONV_TRANSPOSE: Final = {1: meta.conv1d_transpose, 2: meta.conv2d_transpose, 3: meta.conv3d_transpose}
AXES: Final = {1: "W", 2: "HW", 3: "DHW"}
