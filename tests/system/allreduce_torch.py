# Run by another interpreter, which has torch.
# pyright: basic
# pyright: reportMissingImports=false
"""An all-reduce by gloo over every rank; in the first attempt it then works on until one of its ranks is killed. Run by torch's own
interpreter, which has nothing of Fairlead."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # env://: everything is in the environment
rank, size = dist.get_rank(), dist.get_world_size()
value = torch.tensor([rank])
dist.all_reduce(value)
where = os.environ["FAIRLEAD_NODE"]
# In one piece: under torchrun ranks share their output, and print says the end of a line by itself there.
os.write(1, f"rank {rank} of {size} on {where}: sum {int(value)}, pid {os.getpid()}\n".encode())
while "stay" in sys.argv and os.environ["FAIRLEAD_ATTEMPT"] == "1":
    time.sleep(1)
dist.destroy_process_group()
