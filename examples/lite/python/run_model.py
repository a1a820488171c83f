"""Runs a model: feeds its first input from a raw file of float32, prints the first values of every output.

python run_model.py lenet.mge pixels.bin
"""

from __future__ import annotations

from common import arguments, describe, samples

from megenginelite import LiteNetwork

model, pixels = arguments("run_model.py MODEL INPUT.bin")
net = LiteNetwork()
net.load(model)
x = net.get_io_tensor(net.get_input_name(0))
x.set_data_by_copy(samples(pixels, x))
net.forward()
net.wait()
for name in net.get_all_output_name():
    print(describe(name, net.get_io_tensor(name).to_numpy()))
