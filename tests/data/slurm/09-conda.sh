#!/bin/bash
#SBATCH --output=conda.out
#SBATCH --error=conda.err

if [ -f "$HOME/no-such-conda/etc/profile.d/conda.sh" ]; then
  source "$HOME/no-such-conda/etc/profile.d/conda.sh"
  conda activate train
fi
echo "python is $(command -v python3 >/dev/null && echo there)"
echo "to stderr" >&2
