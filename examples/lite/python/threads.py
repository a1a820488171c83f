"""One model, several threads: each has a network of its own, all share the weights. Here each takes one sample.

python threads.py lenet.mge pixels.bin
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from common import Array, arguments, describe, samples

from megenginelite import LiteNetwork

model, pixels = arguments("threads.py MODEL INPUT.bin")
first = LiteNetwork()
first.load(model)
data = samples(pixels, first.get_io_tensor(first.get_input_name(0)))
nets = [first]
while len(nets) < len(data):
    nets.append(LiteNetwork())
    nets[-1].share_weights_with(first)


def run(net: LiteNetwork, sample: Array) -> Array:
    net.get_io_tensor(net.get_input_name(0)).set_data_by_copy(sample[None])
    net.forward()
    net.wait()
    return net.get_io_tensor(net.get_output_name(0)).to_numpy()


with ThreadPoolExecutor(len(nets)) as pool:
    for values in pool.map(run, nets, data):
        print(describe(first.get_output_name(0), values))
