#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=restarted.out

if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then echo "again"; else echo "first start"; fi
