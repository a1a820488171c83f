"""A model that does its own pre-processing: it takes the bytes of an image of any size (make_models.py makes one).

python image.py image.mge photo.ppm
"""

from __future__ import annotations

import pathlib
import re

import numpy as np
from common import arguments, describe

from megenginelite import LiteNetwork

model, photo = arguments("image.py MODEL PHOTO.ppm")
data = pathlib.Path(photo).read_bytes()
head = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", data)
if head is None:
    raise SystemExit(f"{photo} is no binary PPM")
image = np.frombuffer(data, np.uint8, offset=head.end()).reshape(1, int(head[2]), int(head[1]), 3)

net = LiteNetwork()
net.load(model)
net.get_io_tensor(net.get_input_name(0)).set_data_by_copy(image)
net.forward()
net.wait()
name = net.get_output_name(0)
print(describe(name, net.get_io_tensor(name).to_numpy()))
