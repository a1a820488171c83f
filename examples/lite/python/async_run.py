"""forward() returns at once; a callback says when the outputs are there.

python async_run.py lenet.mge pixels.bin
"""

from __future__ import annotations

import threading

from common import arguments, describe, samples

from megenginelite import LiteNetwork

model, pixels = arguments("async_run.py MODEL INPUT.bin")
net = LiteNetwork()
net.load(model)
x = net.get_io_tensor(net.get_input_name(0))
x.set_data_by_copy(samples(pixels, x))

done = threading.Event()
seen = []
net.set_start_callback(lambda inputs: seen.append(f"{len(inputs)} inputs"))
net.set_finish_callback(lambda outputs: seen.append(f"{len(outputs)} outputs"))
net.async_with_callback(done.set)  # on a thread of the network

net.forward()
# ... the program goes on with something else here ...
done.wait()
net.wait()  # an error of the run comes out here

name = net.get_output_name(0)
print(describe(name, net.get_io_tensor(name).to_numpy()))
print("callbacks saw", " and ".join(seen))
