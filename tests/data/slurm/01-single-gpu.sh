#!/bin/bash
#SBATCH --job-name=single
#SBATCH --partition=default
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out

echo "job $SLURM_JOB_NAME on $SLURM_GPUS_ON_NODE GPU with $SLURM_CPUS_PER_TASK CPUs in $SLURM_JOB_PARTITION"
