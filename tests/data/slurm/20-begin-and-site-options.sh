#!/bin/sh
#SBATCH --begin=now+1seconds
#SBATCH --qos=normal
#SBATCH --account=vision
#SBATCH --hint=nomultithread
#SBATCH --distribution=block:block
#SBATCH --chdir=elsewhere
#SBATCH --output=site-%u.out

echo "account $SLURM_JOB_ACCOUNT in $(basename "$PWD")"
