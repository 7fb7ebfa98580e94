#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --output=gpus.out

srun bash -c 'echo "task $SLURM_PROCID has $(echo $CUDA_VISIBLE_DEVICES | tr , "\n" | wc -l)"'
