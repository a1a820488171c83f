"""An encrypted model, made by ``mge-lite encrypt net.mge net.aes --cryption AES_default --key 1f1e1d...00``, decrypted
in memory with a key of the program. Methods of your own: ``LiteGlobal.register_decryption_and_key``.

    python encrypted.py lenet.aes pixels.bin
"""

from __future__ import annotations

from common import arguments, describe, samples

from megenginelite import LiteConfig, LiteGlobal, LiteNetwork

model, pixels = arguments("encrypted.py MODEL INPUT.bin")
LiteGlobal.update_decryption_key("AES_default", list(range(31, -1, -1)))  # the method stays, the key is ours

config = LiteConfig()
config.bare_model_cryption_name = "AES_default"
net = LiteNetwork(config)
net.load(model)
x = net.get_io_tensor(net.get_input_name(0))
x.set_data_by_copy(samples(pixels, x))
net.forward()
net.wait()
name = net.get_output_name(0)
print(describe(name, net.get_io_tensor(name).to_numpy()))
