"""One network, inputs of many sizes: each size is compiled when it comes first and kept.

python shapes.py lenet.mge pixels.bin
"""

from __future__ import annotations

from common import arguments, describe, samples

from megenginelite import LiteNetwork

model, pixels = arguments("shapes.py MODEL INPUT.bin")
net = LiteNetwork()
net.load(model)
x = net.get_io_tensor(net.get_input_name(0))
data = samples(pixels, x)
name = net.get_output_name(0)
for batch in range(1, len(data) + 1):
    x.set_data_by_copy(data[:batch])
    net.forward()
    net.wait()
    print(describe(name, net.get_io_tensor(name).to_numpy()))
try:  # a size that does not fit is an error, and the network can still be used
    x.set_data_by_copy(data.reshape(-1))
    net.forward()
except RuntimeError as e:
    print("as expected:", str(e)[:40])
