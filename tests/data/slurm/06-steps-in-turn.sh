#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --output=steps.out

srun --ntasks=1 --exclusive echo "prepared"
srun -n 2 -l bash -c 'echo "work in step $SLURM_STEP_ID"'
srun -n 1 -c 1 --mem=100M echo "collected"
