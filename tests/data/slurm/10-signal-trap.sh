#!/bin/bash
#SBATCH --time=00:00:02
#SBATCH --signal=B:USR1@1
#SBATCH --output=signal.out
#SBATCH --requeue

trap 'echo "saving"; touch saved.ckpt; exit 0' USR1
echo "started"
while :; do sleep 0.1; done
