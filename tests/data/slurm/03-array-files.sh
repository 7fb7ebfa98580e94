#!/bin/bash -l
#SBATCH --array=1-2
#SBATCH --output=files-%a.out
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=someone@example.org

INPUT=$(printf 'alpha\nbeta\n' | sed -n "${SLURM_ARRAY_TASK_ID}p")
echo "input $INPUT"
