"""Where the time and the memory go: profile.json (python -m megengine.tools.profile_analyze reads it) and a folder with
the plan of memory (graph_info_analyze).

    python profile_run.py lenet.mge FOLDER
"""

from __future__ import annotations

import time

from common import arguments

from megenginelite import LiteNetwork

model, folder = arguments("profile_run.py MODEL FOLDER")
net = LiteNetwork()
net.load(model)
net.get_static_memory_alloc_info(folder)  # makes the folder
net.enable_profile_performance(f"{folder}/profile.json")
for name in net.get_all_input_name():
    net.get_io_tensor(name).fill_zero()
net.forward()  # the first run pays for memory
net.wait()
begin = time.perf_counter()
for _ in range(10):
    net.forward()
    net.wait()
each = (time.perf_counter() - begin) * 100
print(f"{each:.3f} ms each; {folder}/profile.json, graph.json and StaticMemoryInfo.json")
