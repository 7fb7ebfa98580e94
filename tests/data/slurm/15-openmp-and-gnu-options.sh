#!/bin/bash -l
#SBATCH -J openmp
#SBATCH -N 1 -n 1 -c 4
#SBATCH -t 00:05:00
#SBATCH -A vision
#SBATCH -o openmp.out
#SBATCH --open-mode=append

set -euo pipefail
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK OMP_PLACES=cores OMP_PROC_BIND=close
echo "$OMP_NUM_THREADS threads for $SLURM_JOB_ACCOUNT"
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c 'echo "step has $SLURM_CPUS_PER_TASK"'
