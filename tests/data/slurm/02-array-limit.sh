#!/bin/bash
#SBATCH -J sweep
#SBATCH --array=0-3%2
#SBATCH -o logs/sweep_%A_%2a.out
#SBATCH -e logs/sweep_%A_%2a.err

RATES=(0.1 0.01 0.001 0.0001)
echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT ($SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX): ${RATES[$SLURM_ARRAY_TASK_ID]}"
echo "no trouble" >&2
