#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=2
#SBATCH --output=ddp.out

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
export MASTER_ADDR=$head_node
export MASTER_PORT=$((29500 + SLURM_JOB_ID % 100))
echo "nodes ${#nodes[@]}"
cat > rendezvous.py <<'PY'
import os, socket, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["SLURM_NODEID"] == "0":
    with socket.create_server(place) as server:
        peer, _ = server.accept()
        print("met", peer.recv(9).decode(), flush=True)
else:
    for _ in range(200):
        try:
            socket.create_connection(place).sendall(b"rank 1")
            break
        except OSError:
            time.sleep(0.05)
PY
srun python3 rendezvous.py
