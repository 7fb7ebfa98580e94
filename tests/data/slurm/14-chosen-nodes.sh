#!/bin/bash
#SBATCH --nodelist=sim-2
#SBATCH --output=chosen.out

echo "on $SLURMD_NODENAME of $SLURM_JOB_NODELIST"
