#!/bin/bash
#SBATCH --output=directory.out
#SBATCH --no-requeue

cd "$SLURM_SUBMIT_DIR"
[ "$SLURM_SUBMIT_HOST" = "$(hostname)" ] && echo "submitted from here"
[ -f 11-submit-directory.sh ] && echo "script is here"
