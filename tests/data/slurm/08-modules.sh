#!/bin/bash
#SBATCH --job-name=modules
#SBATCH --output=modules.out

if command -v module >/dev/null 2>&1; then
  module purge
  module load cuda
fi
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
echo "threads $OMP_NUM_THREADS"
