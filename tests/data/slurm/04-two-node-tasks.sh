#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=5
#SBATCH --output=two-node-%j.out

echo "nodes $SLURM_JOB_NUM_NODES tasks $SLURM_NTASKS as $SLURM_TASKS_PER_NODE"
srun bash -c 'echo "rank $SLURM_PROCID local $SLURM_LOCALID node $SLURM_NODEID"'
