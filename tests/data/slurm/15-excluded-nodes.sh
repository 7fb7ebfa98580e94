#!/bin/bash
#SBATCH --exclude=sim-[2-9]
#SBATCH -N 1
#SBATCH --output=excluded.out

echo "on $SLURMD_NODENAME"
