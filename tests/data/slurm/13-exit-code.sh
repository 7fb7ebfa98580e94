#!/bin/bash
#SBATCH --output=exit.out

set -euo pipefail
srun bash -c 'exit 3'
echo "never"
