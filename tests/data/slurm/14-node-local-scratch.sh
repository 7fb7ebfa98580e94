#!/bin/bash
#SBATCH --job-name=scratch
#SBATCH --partition=default
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=500M
#SBATCH --time=0-00:10
#SBATCH --output=scratch-%j.out

# Work in a directory of the job's own on the node, and copy the result back, as sites with local disks ask for.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/job-$SLURM_JOB_ID-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
seq 1 "$((SLURM_CPUS_PER_TASK * 5))" > numbers
sort -rn numbers | head -n 1 > result
cp result "$SLURM_SUBMIT_DIR/result-of-scratch.txt"
echo "largest $(cat result) of $(wc -l < numbers) on $SLURM_JOB_NUM_NODES node"
