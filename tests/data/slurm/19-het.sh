#!/bin/bash
#SBATCH --nodes=1
#SBATCH --output=het.out
#SBATCH hetjob
#SBATCH --nodes=2 --gres=gpu:8

echo "first part"
