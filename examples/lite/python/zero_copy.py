"""Inputs and outputs in arrays of the program: nothing is copied in, results are written where the program wants them.

python zero_copy.py lenet.mge pixels.bin
"""

from __future__ import annotations

import numpy as np
from common import arguments, describe, samples

from megenginelite import LiteConfig, LiteNetwork, LiteOptions

model, pixels = arguments("zero_copy.py MODEL INPUT.bin")
options = LiteOptions()
options.force_output_use_user_specified_memory = True
net = LiteNetwork(LiteConfig(option=options))
net.load(model)

x = net.get_io_tensor(net.get_input_name(0))
data = samples(pixels, x)
x.set_data_by_share(data)  # the network reads `data` itself, in every run

results = {}
for name in net.get_all_output_name():
    y = net.get_io_tensor(name)
    results[name] = np.zeros((len(data), *y.layout.shapes[1 : y.layout.ndim]), np.float32)
    y.set_data_by_share(results[name])

for _ in range(2):
    net.forward()
    net.wait()
for name, values in results.items():
    print(describe(name, values))
